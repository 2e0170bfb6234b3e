/** A machine for unit tests: it can do nothing that a directory cannot. */
import { TUNING } from '../../../lib/tuning.ts';
import { createShares } from './shares.ts';
import type { Layout } from './layout.ts';
import type { Machine } from './machine-record.ts';

export function bareMachine(layout: Layout): Machine {
  return {
    tuning: TUNING,
    capacity: { cpuMillis: 2000, memoryBytes: 8 * 1024 ** 3 },
    layout,
    owner: null,
    isolation: { isolated: false, why: 'a test' },
    namespaces: 'none',
    sandbox: { way: 'none', note: '' },
    cloneMethod: 'copy',
    hasMetadata: true,
    reserve: null,
    limits: LIMITS,
    shares: createShares(LIMITS, null, 2000),
    boundsCpu: false,
    installations: { usable: [], tooOld: [] },
    pgbouncer: null,
    pgbackrest: null,
    networks: { method: 'address', note: '' },
    egress: { refused: false, note: '' },
    networkPrefix: 'none-',
  };
}

const LIMITS = { kind: 'none', why: 'a test' } as const;
