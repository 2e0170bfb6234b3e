/** The kinds of services that this machine can run, and what it cannot do. */
import { ADDONS_OF_TYPE, type Addon } from '@howdah/contract';
import type { Capabilities, Possibility, TypeCapability } from '../engine.ts';
import { CLONE_COST } from './host/clone.ts';
import { limitsNote } from './host/limits.ts';
import type { Machine } from './host/machine-record.ts';
import { isolationNote } from './host/machine.ts';
import { QUOTA_NOTE } from './host/quota.ts';
import { installationFor, missingFor } from './postgres/installations.ts';
import { MISSING_POOLER } from './proxy/pooler.ts';

/** Whether a service with these add-ons can run here. */
export function supports(
  { installations }: Pick<Machine, 'installations'>,
  addons: readonly Addon[],
): TypeCapability {
  const installation = installationFor(installations.usable, addons);
  return installation === null
    ? { missing: missingFor(installations.usable, addons) }
    : { version: installation.version };
}

/** @param gateway whether services can have a gateway here */
export function capabilitiesOf(machine: Machine, gateway: TypeCapability): Capabilities {
  const { pgbouncer, isolation, limits, cloneMethod, networks } = machine;
  const pooler: TypeCapability =
    pgbouncer === null ? { missing: MISSING_POOLER } : { version: pgbouncer.version };
  return {
    engine: 'local',
    types: {
      TIMESCALEDB: supports(machine, ADDONS_OF_TYPE.TIMESCALEDB),
      POSTGRES: supports(machine, ADDONS_OF_TYPE.POSTGRES),
      VECTOR: supports(machine, ADDONS_OF_TYPE.VECTOR),
    },
    pooler,
    gateway,
    actions: actionsOf(pooler, gateway),
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
    limitsNote: limitsNote(limits),
    cloneMethod,
    forkCost: CLONE_COST[cloneMethod],
  };
}

const POSSIBLE: Possibility = { possible: true };

const possibleWith = (program: TypeCapability): Possibility =>
  'missing' in program ? { possible: false, why: program.missing } : POSSIBLE;

/** Several servers of a service are behind HAProxy, and poolers are PgBouncer. */
function actionsOf(pooler: TypeCapability, gateway: TypeCapability): Capabilities['actions'] {
  return {
    forkNow: POSSIBLE,
    forkPast: POSSIBLE,
    enablePooler: possibleWith(pooler),
    setHA: possibleWith(gateway),
    switchover: possibleWith(gateway),
    drill: possibleWith(gateway),
    attachToVPC: POSSIBLE,
    verifyBackup: POSSIBLE,
    createReplicaSet: possibleWith(gateway),
    query: POSSIBLE,
  };
}
