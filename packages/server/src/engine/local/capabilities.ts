/** The kinds of services that this machine can run, and what it cannot do. */
import { ADDONS_OF_TYPE, type Addon } from '@howdah/contract';
import type { Capabilities, TypeCapability } from '../engine.ts';
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
  const { pgbouncer, isolation, limits, cloneMethod } = machine;
  return {
    engine: 'local',
    types: {
      TIMESCALEDB: supports(machine, ADDONS_OF_TYPE.TIMESCALEDB),
      POSTGRES: supports(machine, ADDONS_OF_TYPE.POSTGRES),
      VECTOR: supports(machine, ADDONS_OF_TYPE.VECTOR),
    },
    pooler: pgbouncer === null ? { missing: MISSING_POOLER } : { version: pgbouncer.version },
    gateway,
    vpc: machine.networks,
    storage: { method: 'measured', note: QUOTA_NOTE },
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
