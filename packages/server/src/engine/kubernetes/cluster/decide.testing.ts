/** Specs, and the states that decisions are made by. */
import type { ServiceSpec } from '../../spec.ts';
import type { ClusterInput } from './manifest.ts';
import { HEALTHY, type Known, type Step } from './decide.ts';
import { desiredOf } from './desired-state.ts';
import type { ClusterState, Observed, ServerState } from './state.ts';

export const SPEC: ServiceSpec = {
  id: 'abcde12345',
  projectId: 'proj123456',
  addons: [],
  major: 17,
  preload: [],
  extension: null,
  size: { cpuMillis: 500, memoryGbs: 2 },
  storageGb: 10,
  restarts: 0,
  provisioned: false,
  power: 'running',
  endpoint: { host: 'nodes.example.com', port: 30_001 },
  firstVerifier: 'SCRAM-SHA-256$…',
  origin: null,
  recovery: null,
  upgrade: null,
  pooler: null,
  ha: null,
  vpc: null,
  allowedNetworks: null,
  set: null,
};
export const PAUSED: ServiceSpec = { ...SPEC, power: 'paused' };
export const REPLICATED: ServiceSpec = {
  ...SPEC,
  ha: { replicas: 1, sync: 1, switchover: false, drill: null },
};
export const LOOSE: ServiceSpec = {
  ...SPEC,
  ha: { replicas: 1, sync: 0, switchover: false, drill: null },
};
export const REACHED: Known = {
  isReachable: true,
  isFailingOver: false,
  isSwitchoverAsked: false,
  snapshotClass: null,
  placed: { boundsCpu: false, placement: {}, pulls: false, walClass: null },
  canArchive: false,
  hasArchive: false,
  archiveProblem: null,
  waitedMs: 0,
  pooler: { isCurrent: true, starting: null },
  changedByOthers: [],
  cannotFollow: null,
};
export const UNREACHED: Known = { ...REACHED, isReachable: false };

export const server = (n: number, change: Partial<ServerState> = {}): ServerState => ({
  n,
  uid: `uid-${n}`,
  ready: true,
  leaving: false,
  limits: { cpu: '500m', memory: '2Gi' },
  restarts: '0',
  address: null,
  isHeldBack: false,
  ...change,
});

export function up(spec: ServiceSpec, change: Partial<ClusterState> = {}): Observed {
  const instances = 1 + (spec.ha?.replicas ?? 0);
  return {
    cluster: {
      name: 's-abcde12345',
      namespace: 'howdah-proj123456',
      uid: 'uid-of-a-cluster',
      version: '1',
      projectId: 'proj123456',
      nodePort: 30_001,
      leaving: false,
      desired: desiredOf(spec),
      provisioned: true,
      awaited: null,
      phase: HEALTHY,
      phaseReason: null,
      walClass: null,
      image: 'pg:17',
      instances,
      ready: instances,
      hibernated: false,
      waitsForHealthy: false,
      fenced: false,
      stoppedByMove: false,
      primary: 0,
      isChangingPrimary: false,
      foreign: [],
      ...change,
    },
    servers: Array.from({ length: instances }, (_, index) => server(index)),
    obstacle: null,
    parent: null,
    snapshot: null,
    backup: null,
    whyNoBackup: null,
    newestSnapshot: null,
    pooler: null,
  };
}
export const NOTHING: Observed = { ...up(SPEC), cluster: null, servers: [] };
export const name = (step: Step): string => ('name' in step ? step.name : step.kind);

/** The input of the manifest of a small Cluster with data of its own. */
export const CLUSTER_INPUT = {
  id: SPEC.id,
  projectId: 'proj123456',
  region: { code: 'kube', storageClass: null },
  image: 'pg:17',
  placement: {},
  pulls: false,
  walClass: null,
  extensions: [],
  size: SPEC.size,
  bound: false,
  storageGb: 10,
  running: true,
  nodePort: 30_001,
  parameters: {},
  preload: [],
  networks: null,
  isPooled: false,
  restartMark: '0',
  desired: '',
  replicas: 0,
  sync: 0,
  statements: [],
  source: null,
  parent: null,
  snapshot: null,
  snapshotClass: null,
  archives: false,
  targetTime: null,
  keepsArchive: false,
} as const satisfies ClusterInput;
