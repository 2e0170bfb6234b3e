/** The steps of an upgrade of a model service, and of its undo. */
import { UPGRADE_STEPS } from '../upgrade-steps.ts';
import type { Upgrade } from '../spec.ts';
import * as change from './changes.ts';
import { changeBy, type Change, type Situation } from './next-step.ts';
import { rowsAt, type ModelService } from './state.ts';
import { onServer, seedNodeName } from './steps.ts';

/** The next step of a requested upgrade; null: nothing is left of it to do. */
export function decideUpgrade({ spec, service }: Situation): Change | null {
  const { upgrade, ha } = spec;
  if (upgrade === null || spec.power === 'paused') return null;
  const isInUse = service.upgrade === upgrade.id;
  if (isInUse !== upgrade.undo) return null;
  const named = (name: string): string => (ha === null ? name : onServer(name, service.primary));
  const isConverted = upgrade.undo || service.converted === upgrade.id;
  return isConverted ? exchange(upgrade, named) : convert(upgrade, named);
}

function convert({ id, to }: Upgrade, named: (name: string) => string): Change {
  return changeBy(named(UPGRADE_STEPS[0]), 'upgrade', (changed, nowMs) => {
    stopAll(changed, nowMs);
    changed.converted = id;
    return `PostgreSQL ${to}, simulated`;
  });
}

function exchange({ id, to, undo }: Upgrade, named: (name: string) => string): Change {
  return changeBy(named(UPGRADE_STEPS[1]), null, (changed, nowMs) => {
    stopAll(changed, nowMs);
    const { major, commits, snapshots, former } = changed;
    const comesBack = undo && former?.id === id ? former : null;
    if (undo && comesBack === null) throw new Error('there is no data from before the upgrade');
    changed.nodes = changed.nodes.filter(({ n }) => n === changed.primary);
    Object.assign(changed, {
      major: to,
      commits: comesBack?.commits ?? [{ atMs: nowMs, rows: rowsAt(changed, nowMs) }],
      snapshots: comesBack?.snapshots ?? [],
      former: undo ? null : { id, major, commits, snapshots },
      upgrade: undo ? null : id,
      converted: null,
    });
    return 'simulated';
  });
}

function stopAll(service: ModelService, nowMs: number): void {
  for (const { n } of service.nodes.filter(({ runs }) => runs))
    change.stopServer(service, n, nowMs, 'fast');
  service.pooler = null;
}

/** The nodes of a read replica set are made again from a primary of another version. */
export function decideNodes({ spec, service }: Situation): Change | null {
  const { major, set } = spec;
  const [first] = service.nodes;
  if (set === null || first === undefined || spec.power === 'paused') return null;
  if (major === null || service.major === null || major === service.major) return null;
  return changeBy(seedNodeName(first.n), 'readReplicaSet', (changed) => {
    changed.major = major;
    return `its primary runs PostgreSQL ${major}`;
  });
}
