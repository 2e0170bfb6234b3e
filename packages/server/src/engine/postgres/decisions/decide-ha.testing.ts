/** Services with two servers, and observations of them, for the tests of `decideHa`. */
import { expect } from 'vitest';
import type { InstanceSeen, ClusterSeen } from './decide-ha.ts';
import type { PlacedCluster, PlacedSpec } from './placed-spec.ts';

const SERVERS = [
  { n: 0, port: 20001 },
  { n: 1, port: 20002 },
];
export const HA: PlacedCluster = {
  servers: SERVERS,
  primary: 0,
  sync: 1,
  leave: null,
  drill: null,
};
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
  ha: HA,
  vpc: null,
  allowedNetworks: null,
  set: null,
  ...more,
});

const PRIMARY: InstanceSeen = {
  n: 0,
  data: 'primary',
  server: { phase: 'ready', size: 'current', port: 20001, frozen: false, placed: true },
  connected: true,
  silentMs: null,
  filesCurrent: true,
  certificateCurrent: true,
  streaming: false,
  broken: null,
};
const STANDBY: InstanceSeen = {
  ...PRIMARY,
  n: 1,
  data: 'standby',
  server: { phase: 'ready', size: 'current', port: 20002, frozen: false, placed: true },
  streaming: true,
};
export const DEAD: Partial<InstanceSeen> = { server: null, connected: false, streaming: false };

/** A pair in which all is well, but for what is given. */
export function seen(
  primary: Partial<InstanceSeen> = {},
  standby: Partial<InstanceSeen> = {},
  more: Partial<ClusterSeen> = {},
): ClusterSeen {
  const first = { ...PRIMARY, ...primary };
  return {
    primary: {
      directory: 'ours',
      provisioned: true,
      recovered: true,
      upgrade: 'done',
      notStartable: null,
      templateReady: true,
      server:
        first.server === null
          ? null
          : { phase: first.server.phase, start: 'current', placed: true },
      silentMs: null,
      connected: first.connected,
      limited: true,
      owned: true,
      filesCurrent: first.filesCurrent,
      certificateCurrent: first.certificateCurrent,
      contentsCurrent: true,
      extension: null,
      pooler: null,
      disallowedSessions: 0,
      relay: null,
    },
    instances: [first, { ...STANDBY, ...standby }],
    gateway: { running: true, routesToPort: 20001, placed: true, allowedNetworksCurrent: true },
    slotsCurrent: true,
    settling: false,
    rehearsed: false,
    successor: null,
    ...more,
  };
}

export const server = (n: number, kind: string) => ({
  kind: 'server',
  n,
  step: expect.objectContaining({ kind }),
});
export const SUCCESSOR = { n: 1, detail: 'it has all' };
export const smaller = {
  phase: 'ready',
  size: 'smaller',
  port: 20001,
  frozen: false,
  placed: true,
} as const;
export const larger = { ...smaller, size: 'larger' } as const;
