/** The change that brings a Cluster to its desired state. Pure. */
import { isDeepStrictEqual } from 'node:util';
import type { Desired } from './desired-state.ts';
import { STEPS } from './steps.ts';

/** `desired`: the state that is written, which may be one on the way to the desired one. */
export type Change = Readonly<{
  name: string;
  awaits: boolean;
  detail: string;
  desired: Desired;
}>;

/** The step that brings a Cluster to what is desired; null: it was asked for that already. */
export function changeOf(before: Desired | null, desired: Desired): Change | null {
  if (before === null)
    return {
      name: STEPS.write,
      awaits: true,
      detail: 'the annotation with its desired state was changed',
      desired,
    };
  if (isDeepStrictEqual(before, desired)) return null;
  if (!desired.running)
    // Whatever else is different is written when it starts.
    return before.running ? { name: STEPS.stop, awaits: true, detail: 'paused', desired } : null;
  if (!before.running)
    return { name: STEPS.start, awaits: true, detail: 'with its volumes', desired };
  if (!isDeepStrictEqual(before.source, desired.source))
    return { name: STEPS.promote, awaits: true, detail: 'it accepts writes', desired };
  if (before.parent !== desired.parent)
    return {
      name: desired.recovered === true ? STEPS.endRecovery : STEPS.detach,
      awaits: isRecovered(before),
      detail: 'it has its data',
      desired,
    };
  const restart = restartWhy(before, desired);
  if (restart !== null) return { name: STEPS.restart, awaits: true, detail: restart, desired };
  if (before.replicas !== desired.replicas) return replicasOf(before, desired);
  if (before.storageGb !== desired.storageGb)
    return { name: STEPS.growVolume, awaits: false, detail: `${desired.storageGb} GB`, desired };
  return { name: STEPS.write, awaits: true, detail: withoutRestart(before, desired), desired };
}

/** The difference, if it needs no restart. */
function withoutRestart(before: Desired, desired: Desired): string {
  if (before.snapshotClass !== desired.snapshotClass) return 'the class of snapshots';
  if (before.archives !== desired.archives) return 'the archive of WAL';
  if (before.reader !== desired.reader || before.control !== desired.control)
    return 'the roles of the control plane';
  if (!isDeepStrictEqual(before.networks, desired.networks))
    return desired.networks === undefined
      ? 'all networks are allowed'
      : `allowed networks: ${desired.networks.length}`;
  if (before.pooled !== desired.pooled)
    return `${desired.pooled === true ? 'its' : 'no'} pooler may connect`;
  return before.sync === desired.sync ? 'without a restart' : standbys(desired);
}

/** Whether its data came by a recovery, after which it is restarted with limits of its size. */
const isRecovered = ({ targetTime }: Desired): boolean => targetTime !== undefined;

/** No write waits for a standby before that exists, or after it is asked to go. */
function replicasOf(before: Desired, desired: Desired): Change {
  const isLess = desired.replicas < before.replicas;
  if (desired.set !== undefined) {
    const name = isLess ? STEPS.removeNode : STEPS.addNode;
    return { name, awaits: true, detail: `${1 + desired.replicas} nodes`, desired };
  }
  if (isLess && desired.sync < before.sync) {
    const first = { ...desired, replicas: before.replicas };
    // This step is not waited for: the standby that must go may be dead.
    return { name: STEPS.write, awaits: false, detail: standbys(first), desired: first };
  }
  const first = { ...desired, sync: Math.min(before.sync, desired.sync) };
  const name = isLess ? STEPS.removeStandby : STEPS.addStandby;
  return { name, awaits: true, detail: standbys(first), desired: first };
}

const standbys = ({ replicas, sync }: Desired): string =>
  `${replicas} standbys, ${sync} of them synchronous`;

/** Whether a user has asked for a restart of servers that run. */
export const isRestartAsked = (before: Desired | null, desired: Desired): before is Desired =>
  before !== null && before.running && desired.running && before.restarts !== desired.restarts;

/** A bound that follows from the region begins with a start that is due anyway. */
const isBoundChanged = (before: Desired, { bound }: Desired): boolean =>
  bound !== undefined && bound !== (before.bound ?? false);

/** Why a change restarts its servers; null: it does not. */
export function restartWhy(before: Desired, desired: Desired): string | null {
  if (!isDeepStrictEqual(before.size, desired.size)) return 'for its new size';
  if (isBoundChanged(before, desired))
    return desired.bound === true ? 'for a bound of its CPU' : 'to lift the bound of its CPU';
  if (!isDeepStrictEqual(before.preload, desired.preload)) return 'to load other libraries';
  if (before.restarts !== desired.restarts) return 'as asked';
  if (desired.set === undefined) return null;
  if (!isDeepStrictEqual(before.networks, desired.networks))
    return 'for other networks, which ends all sessions';
  return isDeepStrictEqual(before.set, desired.set) ? null : 'for the size of its service';
}
