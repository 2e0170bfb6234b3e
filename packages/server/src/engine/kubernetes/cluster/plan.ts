/** The steps of a change if nothing prevents them: the answer to a dry run. */
import { isDeepStrictEqual } from 'node:util';
import type { Lifecycle } from '../../engine.ts';
import type { ServiceSpec } from '../../spec.ts';
import { changeOf, restartWhy } from './cluster-change.ts';
import { chooseStandby, type Known, beginsWithSnapshot } from './decide.ts';
import { desiredOf } from './desired-state.ts';
import type { Observed } from './state.ts';
import { STEPS, switchOverTo } from './steps.ts';
import { stepsOf } from '../backup/verification-pod.ts';
import type { Verifiable } from '../backup/verification-choice.ts';

type Existing = Pick<Observed, 'cluster' | 'servers' | 'parent' | 'whyNoBackup'> &
  Pick<Known, 'snapshotClass'> &
  /** The backup that would be verified; null: there is none yet. */
  Readonly<{ verified: Verifiable | null }>;

/** @param existing what there is of the service now */
export function planOf(
  existing: Existing,
  ...[kind, spec, running, sizeBefore]: Parameters<Lifecycle['plan']>
): string[] {
  const pooler = spec.pooler === null ? [] : [STEPS.startPooler];
  const isLimited = spec.allowedNetworks !== null;
  const write = [STEPS.write, STEPS.connect];
  const begin = [STEPS.start, STEPS.connect, ...pooler];
  const stopPooler = pooler.length === 0 ? [] : [STEPS.stopPooler];
  switch (kind) {
    case 'create':
      return [STEPS.create, ...begin];
    case 'fork':
      return [
        ...planSource(spec, existing),
        STEPS.create,
        STEPS.start,
        STEPS.detach,
        STEPS.connect,
      ];
    case 'start':
    case 'repair':
      return running ? [] : begin;
    case 'restore':
      return spec.power === 'running' ? begin : [];
    case 'recover':
      return [STEPS.create, STEPS.start, STEPS.endRecovery, STEPS.connect, ...pooler];
    case 'stop':
    case 'delete':
      return running ? [...stopPooler, STEPS.stop] : [];
    case 'restart':
      return running ? [STEPS.restart, STEPS.connect] : [];
    case 'resize':
      // A paused service has its new size once it starts.
      if (!running) return [];
      return isDeepStrictEqual(spec.size, sizeBefore)
        ? planSameSize(spec, existing)
        : [STEPS.restart, STEPS.connect, ...(spec.pooler === null ? [] : [STEPS.reloadPooler])];
    case 'setHA':
      return running ? planReplicas(spec, existing) : [];
    case 'switchover':
      return planSwitchover(existing);
    case 'enablePooler':
      return running ? [...(isLimited ? write : []), ...pooler] : [];
    case 'disablePooler':
      return running ? [STEPS.stopPooler, ...(isLimited ? write : [])] : [];
    case 'drill':
      return [STEPS.drill, STEPS.connect];
    case 'attachToAllowList':
    case 'detachFromAllowList':
    case 'attachToVPC':
    case 'detachFromVPC':
      return running ? [...write, ...(spec.pooler === null ? [] : [STEPS.reloadPooler])] : [];
    case 'verifyBackup':
      return stepsOf(existing.verified?.toMs ?? null).map(([, name]) => name);
    // Changes without a step here, and those that the region refuses.
    case 'updatePassword':
    case 'setEnvironment':
    case 'setPurpose':
    case 'rename':
    case 'setExpiry':
    case 'setAutoSuspend':
    case 'setBackupRetention':
    case 'adopt':
    case 'failover':
    case 'runBackup':
    case 'enableExtension':
    case 'disableExtension':
    case 'reset':
    case 'upgrade':
    case 'tryUpgrade':
    case 'undoUpgrade':
    case 'move':
      return [];
  }
}

const planSource = ({ origin }: ServiceSpec, existing: Existing): string[] =>
  origin?.strategy === 'NOW' && beginsWithSnapshot(existing) ? [STEPS.snapshot] : [];

/** A resize of the volume, or of the bound of the CPU. */
function planSameSize(spec: ServiceSpec, { cluster }: Existing): string[] {
  const before = cluster?.desired ?? null;
  if (before !== null && restartWhy(before, desiredOf(spec)) !== null)
    return [STEPS.restart, STEPS.connect];
  return before?.storageGb === spec.storageGb ? [] : [STEPS.growVolume, STEPS.connect];
}

function planSwitchover({ cluster, servers }: Existing): string[] {
  const to = cluster === null ? null : chooseStandby(cluster, servers);
  return to === null ? [] : [switchOverTo(to), STEPS.connect];
}

function planReplicas(spec: ServiceSpec, { cluster }: Existing): string[] {
  const steps: string[] = [];
  let before = cluster?.desired ?? null;
  for (;;) {
    const change = changeOf(before, desiredOf(spec));
    if (change === null) return steps.length === 0 ? [] : [...steps, STEPS.connect];
    steps.push(change.name);
    before = change.desired;
  }
}
