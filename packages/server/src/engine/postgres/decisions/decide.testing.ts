/** Services and observations of the tests of `decide`. */
import type { Observation } from './decide.ts';
import type { PlacedSpec } from './placed-spec.ts';
import { POOLER_WELL, WELL } from './simulate.ts';

export const spec = (more: Partial<PlacedSpec> = {}): PlacedSpec => ({
  id: 'abcdefghij',
  addons: [],
  major: null,
  preload: [],
  extension: null,
  size: 'shared',
  storageGb: 10,
  restarts: 0,
  provisioned: false,
  power: 'running',
  endpoint: { host: 'localhost', port: 20000 },
  projectId: null,
  firstVerifier: 'SCRAM',
  origin: null,
  recovery: null,
  upgrade: null,
  pooler: null,
  ha: null,
  vpc: null,
  allowedNetworks: null,
  set: null,
  ...more,
});
export const PAUSED = spec({ power: 'paused' });
export const POOLED = spec({ pooler: { port: 20001 } });
export const INSIDE = spec({
  vpc: { id: '1000', address: '10.1.0.2' },
  allowedNetworks: ['10.1.0.0/16'],
});
export const SPARE = spec({ firstVerifier: null });
export const ORIGIN = { parent: 'jihgfedcba', strategy: 'NOW', targetTime: null } as const;
export const FORK = spec({ origin: ORIGIN });

export { WELL, POOLER_WELL as pooler };
export const DOWN: Observation = { ...WELL, server: null, connected: false };
export const NONE: Observation = {
  ...DOWN,
  directory: 'absent',
  provisioned: false,
  templateReady: false,
};
export const phase = (phase: 'starting' | 'stopping') => ({
  server: { phase, start: 'current' as const, placed: true },
  connected: false,
});
