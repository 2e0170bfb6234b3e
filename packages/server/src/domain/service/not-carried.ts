/**
 * The only table of the parts of a service that the result of an operation does not have, in words
 * for users. A dry run answers with them, and the operation keeps them.
 */
import type { Environment, ForkStrategy } from '@howdah/contract';
import type { Moves } from '../../engine/moves.ts';
import type { ServiceRow } from './row.ts';

/** The facts of the service that something is made of. */
export type Carried = Pick<
  ServiceRow,
  | 'auto_suspend_seconds'
  | 'backup_retention_days'
  | 'environment'
  | 'kept'
  | 'metric_exporter_id'
  | 'pooler'
  | 'read_replica_sets'
  | 'replica_count'
  | 'status'
>;

/** The operations that leave something behind, and what they were asked for. */
export type Leaving =
  | {
      kind: 'fork';
      strategy: ForkStrategy;
      environment: Environment;
      newMajor: number | null;
      /** Whether it falls asleep as it was asked to, or by a default. */
      sleeps: boolean;
      /** Where it runs; the operator of a cluster has each copy recover. */
      place: Moves['place'];
    }
  | { kind: 'createFromKit' }
  | { kind: 'restore' | 'recover' | 'reset' | 'undoUpgrade' | 'move' }
  | { kind: 'upgrade'; slots: readonly string[] }
  | { kind: 'switchover' | 'failover'; slots: SlotFates };

/** Tenants choose the names of slots and sets, and how many there are. */
const NAMES_SHOWN = 5;

const STATISTICS = 'the counters of pg_stat_… and pg_stat_statements, which begin again at zero';
const UNLOGGED = 'the rows of unlogged tables, and the values of unlogged sequences';
const SLOTS = 'replication slots, logical and physical: consumers create them again';
const LOGS = 'server logs and metrics from before';
const POINTS = 'snapshots and points in time from before';
const OWN_PASSWORD =
  'the password of tsdbadmin: it has another one; all other roles keep their passwords';
const PLANNER =
  'statistics of the planner: ANALYZE makes new ones, by the settings of the new version';

/** @param service null: it belongs to another installation, and its settings are not read */
export function notCarriedBy(leaving: Leaving, service: Carried | null): string[] {
  switch (leaving.kind) {
    case 'fork':
      return ofFork(leaving, service);
    case 'createFromKit':
      return [
        OWN_PASSWORD,
        'connection pooler, standbys, read replica sets, VPC, allow list, exporter, environment ' +
          'and backup retention: those of the other installation',
        SLOTS,
        UNLOGGED,
        STATISTICS,
        LOGS,
        POINTS,
      ];
    case 'restore':
      // A service whose data is still on its machine comes back with all that it had.
      return service === null || service.kept === null
        ? []
        : [...ofSets(service), SLOTS, UNLOGGED, STATISTICS, 'server logs from before', POINTS];
    case 'recover':
      return [
        'writes after the last one whose WAL is left: the present data is set aside',
        SLOTS,
        UNLOGGED,
        STATISTICS,
      ];
    case 'reset':
      return [
        'everything that was written to the fork: its data is replaced and removed',
        'roles and databases that were made in it, and passwords but that of tsdbadmin',
        POINTS,
        SLOTS,
        UNLOGGED,
        STATISTICS,
      ];
    case 'upgrade':
      return [namedSlots(leaving.slots), STATISTICS, PLANNER, POINTS_OF_UPGRADE];
    case 'undoUpgrade':
      return [
        'everything that was written since the upgrade',
        'snapshots and points in time since the upgrade',
      ];
    case 'move':
      return [
        'the host and port of its endpoint: clients need the new ones',
        STATISTICS,
        'server logs from before',
        POINTS,
      ];
    case 'switchover':
    case 'failover':
      return [...changedSlots(leaving.slots), UNLOGGED, STATISTICS];
  }
}

const POINTS_OF_UPGRADE =
  'snapshots and points in time from before: an undo of the upgrade brings them back, for as ' +
  'long as the former data is kept';

type Fork = Extract<Leaving, { kind: 'fork' }>;

function ofFork(
  { strategy, environment, newMajor, sleeps, place }: Fork,
  parent: Carried | null,
): string[] {
  // A copy of the files of a server that was shut down recovers nothing, and has both.
  const isCopyOfFiles = strategy === 'NOW' && place === 'machine' && parent?.status === 'PAUSED';
  return [
    OWN_PASSWORD,
    ...(parent === null ? [] : ofSettings(parent)),
    ...(parent !== null && parent.environment !== environment
      ? [`its environment ${parent.environment}: the fork is ${environment}`]
      : []),
    ...(parent !== null && parent.auto_suspend_seconds !== null && !sleeps
      ? ['the time after which it falls asleep: --auto-suspend gives the fork one']
      : []),
    SLOTS,
    ...(isCopyOfFiles ? [] : [UNLOGGED]),
    ...(isCopyOfFiles && newMajor === null ? [] : [STATISTICS]),
    ...(newMajor === null ? [] : [PLANNER]),
    LOGS,
    POINTS,
  ];
}

/** The parts of a service beside its data. VPC, allow list and libraries are carried over. */
function ofSettings(parent: Carried): string[] {
  const { pooler, replica_count: replicas, metric_exporter_id: exporter } = parent;
  const { backup_retention_days: days } = parent;
  return [
    ...(pooler ? ['its connection pooler'] : []),
    ...(replicas > 0 ? [`its ${replicas === 1 ? 'standby' : `${replicas} standbys`}`] : []),
    ...ofSets(parent),
    ...(exporter === null ? [] : ['its exporter of metrics']),
    ...(days === null ? [] : [`its own backup retention of ${days} days`]),
  ];
}

const ofSets = ({ read_replica_sets: sets }: Carried): string[] =>
  sets.length === 0 ? [] : [`its read replica sets: ${shown(sets.map(({ name }) => name))}`];

const namedSlots = (slots: readonly string[]): string =>
  slots.length === 0
    ? SLOTS
    : `its replication slots ${shown(slots)}: consumers create them again, and read their tables ` +
      'again';

/** The slots that are gone, or may be, after the primary has changed. */
function changedSlots({ removed, unsynchronised, kept, canBeKept }: SlotFates): string[] {
  if (removed.length + unsynchronised.length + kept.length === 0) return [SLOTS];
  const hint = canBeKept ? '; a logical slot that is made with failover => true goes on' : '';
  return [
    ...(removed.length === 0 ? [] : [`${namedSlots(removed)}${hint}`]),
    ...(unsynchronised.length === 0
      ? []
      : [
          `its failover slots ${shown(unsynchronised)}, ` +
            'unless a standby has synchronised them by ' +
            'then: it can once a consumer reads from them',
        ]),
  ];
}

/** The note of a dry run about the slots that go on; undefined: there are none. */
export function noteOfSlots({ kept }: SlotFates): string | undefined {
  return kept.length === 0
    ? undefined
    : `its failover slots ${shown(kept)} go on: its standbys have synchronised them`;
}

function shown(names: readonly string[]): string {
  const some = names.slice(0, NAMES_SHOWN).map((name) => name.slice(0, 64));
  const more = names.length > NAMES_SHOWN ? ` and ${names.length - NAMES_SHOWN} more` : '';
  return `${some.join(', ')}${more}`;
}

// The fates of replication slots of users when the primary of their service changes
// (docs/decisions/0083-failover-slots.md).

/** `hasFailover`: null, where PostgreSQL is older than 17 and does not know such slots. */
export type SlotOfUsers = { readonly name: string; readonly hasFailover: boolean | null };

export type SlotFates = {
  /** Slots that go on: the standbys have them. */
  readonly kept: readonly string[];
  /** Slots that go on if a standby has them by then. */
  readonly unsynchronised: readonly string[];
  readonly removed: readonly string[];
  /** Whether a slot that is made as a failover slot would go on. */
  readonly canBeKept: boolean;
};

/** @param synchronised the slots that each standby has; null: slots do not go on in the region */
export function slotFates(
  slots: readonly SlotOfUsers[],
  synchronised: readonly string[] | null,
): SlotFates {
  const goesOn = ({ hasFailover }: SlotOfUsers): boolean =>
    synchronised !== null && hasFailover === true;
  const isThere = ({ name }: SlotOfUsers): boolean => synchronised?.includes(name) === true;
  const namesOf = (some: readonly SlotOfUsers[]): string[] => some.map(({ name }) => name);
  return {
    kept: namesOf(slots.filter((slot) => goesOn(slot) && isThere(slot))),
    unsynchronised: namesOf(slots.filter((slot) => goesOn(slot) && !isThere(slot))),
    removed: namesOf(slots.filter((slot) => !goesOn(slot))),
    canBeKept: synchronised !== null && slots.some(({ hasFailover }) => hasFailover !== null),
  };
}
