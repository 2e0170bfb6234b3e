/**
 * The data that a service has had across upgrades to other major versions, and its row when some of
 * it comes back from a repository.
 */
import type { ServiceChange, ServiceRow, Upgraded } from './row.ts';

type Upgrades = Pick<ServiceRow, 'upgrade' | 'upgraded'>;

/** The most upgrades and resets of a service that are known: more than it has major versions. */
export const UPGRADES_MAX = 32;

const LOST = 'its data was lost meanwhile, and came back as it was before';

/** The last upgrade and those before it, each of which may be undone when those after it are. */
function upgradesUpTo(last: Upgraded | null): Upgraded[] {
  const found: Upgraded[] = [];
  for (let one = last; one !== null; one = one.before ?? null) found.push(one);
  return found;
}

/**
 * The last upgrade of a service after another one, or a reset, is done. A service may be reset for
 * each run of a test: the oldest resets are forgotten, of whose data nothing is left.
 */
export function upgradedWith(last: Upgraded | null, done: Omit<Upgraded, 'before'>): Upgraded {
  const before = upgradesUpTo(last);
  while (before.length >= UPGRADES_MAX) {
    const oldest = before.findLastIndex(({ from }) => from === null);
    // -1, where none is a reset, is the oldest upgrade.
    before.splice(oldest, 1);
  }
  const earlier = before.reduceRight<Upgraded | null>((older, one) => {
    return { ...one, before: older };
  }, null);
  return { ...done, before: earlier };
}

/** The last upgrade of a service when one of them is undone. */
export function upgradedWithout(last: Upgraded | null, id: string): Upgraded | null {
  return last?.id === id ? (last.before ?? null) : last;
}

/**
 * The upgrades whose data a repository may have, the desired one first; null is the data of before
 * all upgrades.
 */
export function upgradesOf({ upgrade, upgraded }: Upgrades): (string | null)[] {
  const made = [...upgradesUpTo(upgraded).map(({ id }) => id), null];
  if (upgrade === null || upgrade.problem !== null) return made;
  const others = made.filter((id) => id !== upgrade.id);
  return upgrade.undo ? [...others, upgrade.id] : [upgrade.id, ...others];
}

/** Those whose data the service has now, or has when what is under way is done. */
export function presentUpgrades(row: Upgrades): (string | null)[] {
  return upgradesOf(row).slice(0, row.upgrade === null ? 1 : 2);
}

/**
 * The change of a row whose service gets data of one of these upgrades. A repository may have no
 * backup of the newest yet: then the service is again what it was before.
 *
 * @param major the version of that data
 */
export function withDataOf(
  { upgrade, upgraded, pg_version: from }: Upgrades & Pick<ServiceRow, 'pg_version'>,
  upgradeId: string | null,
  major: number,
  nowMs = Date.now(),
): ServiceChange {
  const earlier = upgradesUpTo(upgraded).find(({ id }) => id === upgradeId) ?? null;
  const isUnderWay = upgrade !== null && upgrade.problem === null;
  if (isUnderWay && upgradeId === upgrade.id && earlier === null) {
    const done = { id: upgrade.id, at: new Date(nowMs).toISOString() };
    return {
      pg_version: major,
      upgrade: null,
      upgraded: from === null ? null : upgradedWith(upgraded, { ...done, from }),
    };
  }
  // An undo has what it was asked for unless the data of its upgrade comes back.
  const isDone = upgrade?.undo === true && upgradeId !== upgrade.id;
  return {
    pg_version: major,
    upgrade: !isUnderWay || isDone ? null : { ...upgrade, problem: LOST },
    upgraded: earlier,
  };
}
