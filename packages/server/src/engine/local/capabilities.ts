/** The kinds of services that this machine can run, and what it cannot do. */
import { ADDONS_OF_TYPE, OLDEST_PG_VERSION, type Addon } from '@howdah/contract';
import { PGBACKREST_REMEDY, whyNotServed } from '../../repository/pgbackrest.ts';
import type {
  Capabilities,
  MajorCapability,
  Possibility,
  PostgresCapability,
  TypeCapability,
} from '../engine.ts';
import { whyNotConverted } from './convert/convert.ts';
import { CLONE_COST } from './host/clone.ts';
import { limitsNote } from './host/limits.ts';
import type { Machine } from './host/machine-record.ts';
import { isolationNote } from './host/machine.ts';
import { QUOTA_NOTE } from './host/quota.ts';
import { EDITION_NOTE, installationFor, missingFor } from './postgres/installations.ts';
import { MISSING_POOLER } from './proxy/pooler.ts';

/**
 * Whether a service with these add-ons can run here.
 *
 * @param major the major version that was asked for; null: the preferred one
 */
export function supports(
  { installations }: Pick<Machine, 'installations'>,
  addons: readonly Addon[],
  major: number | null,
): PostgresCapability {
  const installation = installationFor(installations.usable, addons, major);
  return installation === null
    ? { missing: missingFor(installations.usable, addons, major) }
    : {
        version: installation.version,
        major: installation.major,
        ...(addons.includes('time-series') && installation.timescaledb !== null
          ? { note: EDITION_NOTE[installation.timescaledb] }
          : {}),
      };
}

/** Why data of services with these add-ons cannot become that of a newer major; null: it can. */
export function whyNotConvertedTo(
  { installations }: Pick<Machine, 'installations'>,
  addons: readonly Addon[],
  major: number,
): string | null {
  const to = installationFor(installations.usable, addons, major);
  return to === null
    ? missingFor(installations.usable, addons, major)
    : whyNotConverted(to, addons);
}

/** The major versions that are installed, newest first, and whether each has the add-ons. */
function majorsFor(
  machine: Pick<Machine, 'installations'>,
  addons: readonly Addon[],
): MajorCapability[] {
  const majors = new Set(machine.installations.usable.map(({ major }) => major));
  return [...majors]
    .toSorted((a, b) => b - a)
    .map((major) => ({ ...supports(machine, addons, major), major }));
}

/** @param gateway whether services can have a gateway here */
export function capabilitiesOf(machine: Machine, gateway: TypeCapability): Capabilities {
  const { pgbouncer, isolation, limits, cloneMethod, networks } = machine;
  const pooler: TypeCapability =
    pgbouncer === null ? { missing: MISSING_POOLER } : { version: pgbouncer.version };
  return {
    engine: 'local',
    types: {
      TIMESCALEDB: supports(machine, ADDONS_OF_TYPE.TIMESCALEDB, null),
      POSTGRES: supports(machine, ADDONS_OF_TYPE.POSTGRES, null),
      VECTOR: supports(machine, ADDONS_OF_TYPE.VECTOR, null),
    },
    versions: {
      TIMESCALEDB: majorsFor(machine, ADDONS_OF_TYPE.TIMESCALEDB),
      POSTGRES: majorsFor(machine, ADDONS_OF_TYPE.POSTGRES),
      VECTOR: majorsFor(machine, ADDONS_OF_TYPE.VECTOR),
    },
    pooler,
    gateway,
    offMachine: offMachineOf(machine),
    archivesInStore: false,
    actions: actionsOf(pooler, gateway, offMachineOf(machine)),
    vpc: { isNetwork: networks.method === 'bridge', note: networks.note },
    storage: { note: QUOTA_NOTE },
    isolation: {
      isolated: isolation.isolated,
      note: isolationNote(
        isolation.isolated ? null : isolation.why,
        machine.sandbox,
        machine.egress,
      ),
    },
    limitsEnforced: limits.kind !== 'none',
    limitsNote: limitsNote(limits, machine.boundsCpu),
    boundsCpu: machine.boundsCpu,
    room: { ...machine.capacity, place: 'the machine', isNode: false },
    cloneMethod,
    forkCost: CLONE_COST[cloneMethod],
  };
}

/** Whether pgBackRest is there, and new enough for the installed versions of PostgreSQL. */
export function offMachineOf({
  pgbackrest,
  installations,
}: Pick<Machine, 'pgbackrest' | 'installations'>): TypeCapability {
  const majors = new Set(installations.usable.map(({ major }) => major));
  const reasons = [...majors].flatMap((major) => whyNotServed(pgbackrest, major) ?? []);
  if (pgbackrest === null)
    return { missing: whyNotServed(null, OLDEST_PG_VERSION) ?? PGBACKREST_REMEDY };
  if (majors.size > 0 && reasons.length === majors.size) return { missing: reasons.join('; ') };
  return {
    version: pgbackrest.version,
    ...(reasons.length === 0 ? {} : { note: reasons.join('; ') }),
  };
}

const POSSIBLE: Possibility = { possible: true };

const possibleWith = (program: TypeCapability): Possibility =>
  'missing' in program ? { possible: false, why: program.missing } : POSSIBLE;

/** Several servers of a service are behind HAProxy, and poolers are PgBouncer. */
function actionsOf(
  pooler: TypeCapability,
  gateway: TypeCapability,
  offMachine: TypeCapability,
): Capabilities['actions'] {
  return {
    forkNow: POSSIBLE,
    forkPast: POSSIBLE,
    reset: POSSIBLE,
    enablePooler: possibleWith(pooler),
    setHA: possibleWith(gateway),
    switchover: possibleWith(gateway),
    drill: possibleWith(gateway),
    attachToVPC: POSSIBLE,
    attachToAllowList: POSSIBLE,
    verifyBackup: POSSIBLE,
    runBackup: possibleWith(offMachine),
    createReplicaSet: possibleWith(gateway),
    query: POSSIBLE,
    enableExtension: POSSIBLE,
    disableExtension: POSSIBLE,
    setAutoSuspend: POSSIBLE,
  };
}
