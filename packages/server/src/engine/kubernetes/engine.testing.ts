/** An engine for tests, with a cluster that keeps objects and a server that answers to logins. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Placement } from '@howdah/contract';
import { QUIET } from '../../lib/log.ts';
import { createRounds } from '../../lib/rounds.ts';
import { TUNING } from '../../lib/tuning.ts';
import { scramVerifier } from '../../lib/scram.ts';
import { issueServerCertificate, openCertificateAuthority } from '../../lib/tls.ts';
import {
  createMemoryLogs,
  type MemoryLogs,
  createMemoryRecords,
  type MemoryRecords,
} from '../conformance/memory-records.ts';
import type { Engine, Verdict } from '../engine.ts';
import type { ServiceSpec } from '../spec.ts';
import { readKubeconfig } from './api/kubeconfig.ts';
import { startFakeKubernetes, type FakeKubernetes } from './fake-kubernetes.testing.ts';
import { startFakePostgres, type LoginAnswer } from './fake-postgres.testing.ts';
import { createKubernetesEngine } from './index.ts';
import type { ObjectStore } from '../object-store.ts';
import { saltOf } from './network/challenge.ts';
import { HEALTHY } from './cluster/decide.ts';

export const ID = 'abcde12345';
export const NAMESPACE = '/namespaces/howdah-proj123456';
export const clusterOf = (id: string): string =>
  `/apis/postgresql.cnpg.io/v1${NAMESPACE}/clusters/s-${id}`;
export const CLUSTER = clusterOf(ID);
export const podAt = (ordinal: number, id = ID): string =>
  `/api/v1${NAMESPACE}/pods/s-${id}-${ordinal}`;
export const POD = podAt(1);
export const PASSWORD = `/api/v1${NAMESPACE}/secrets/s-${ID}-password`;
export const READER_SECRET = `/api/v1${NAMESPACE}/secrets/s-${ID}-reader`;
export const labelsOf = (id: string) => ({
  'app.kubernetes.io/managed-by': 'howdah',
  'cnpg.io/cluster': `s-${id}`,
});
export const LABELS = labelsOf(ID);

export type Cloud = {
  fake: FakeKubernetes;
  engine: Engine;
  /** Whether the engine is the only one that writes to the cluster. */
  mayWrite: boolean;
  /** The answer of the server at the endpoint to a login. */
  answer: LoginAnswer;
  /** The port of the endpoint. */
  readonly port: number;
  readonly records: MemoryRecords;
  readonly logs: MemoryLogs;
  /** The object store of the region. */
  store: ObjectStore | null;
  /** The domain of the region; null: its services have ports. */
  domain: string | null;
  /** The images of PostgreSQL of the region, by major version. */
  images: Readonly<Record<number, string>>;
  /** Where pods run: of the region by '', of services by their ids. */
  placed: Readonly<Record<string, Placement>>;
  /** Whether the region bounds services that do not say it themselves. */
  boundsCpu: boolean;
  /** The storage class of a volume for WAL of new services; null: WAL is with the data. */
  walStorageClass: string | null;
  /** The credentials of registries; null: none are set. */
  imagePull: Readonly<{ config: string | null }> | null;
  /** The ids of services that the engine has reported as changed. */
  readonly changed: readonly string[];
  /** Another engine on the same cluster. */
  readonly openEngine: () => Engine;
  readonly close: () => Promise<void>;
};

/** @param keptLogsEveryMs between two rounds of kept logs; default: as in a region */
export async function openCloud(
  keptLogsEveryMs: number = TUNING.rounds.keptLogs.everyMs,
): Promise<Cloud> {
  const keptLogs = { everyMs: keptLogsEveryMs };
  const rounds = createRounds({ ...TUNING.rounds, keptLogs }, QUIET);
  const directory = await mkdtemp(join(tmpdir(), 'hd-'));
  const authority = await openCertificateAuthority(directory);
  const records = createMemoryRecords({ take: async () => 1 });
  const logs = createMemoryLogs();
  const changed: string[] = [];
  const postgres = await startFakePostgres(
    await issueServerCertificate(authority, ['127.0.0.1']),
    () => cloud.answer,
  );
  const fake = await startFakeKubernetes();
  const openEngine = (kubeconfig = cloud.fake.kubeconfig): Engine =>
    createKubernetesEngine({
      settings: {
        code: 'kube',
        host: '127.0.0.1',
        get domain() {
          return cloud.domain;
        },
        storageClass: null,
        get boundsCpu() {
          return cloud.boundsCpu;
        },
        get images() {
          return cloud.images;
        },
        extensions: { 17: ['timescaledb', 'vector'] },
        poolerImage: 'pgbouncer:1.25.1',
        placementOf: (...ids) => Object.assign({}, ...['', ...ids].map((id) => cloud.placed[id])),
        get walStorageClass() {
          return cloud.walStorageClass;
        },
        get imagePull() {
          return cloud.imagePull;
        },
      },
      connection: readKubeconfig(kubeconfig, null),
      mayWrite: () => cloud.mayWrite,
      authority,
      records: records.store,
      keptLogs: logs.store,
      rounds,
      readLagLimit: { bytes: 1, seconds: 1 },
      backups: { windowMs: 7 * 86_400_000, snapshotEveryMs: 86_400_000 },
      objectStore: () => cloud.store,
      changed: (id) => changed.push(id),
      failed: () => undefined,
    });
  const cloud: Cloud = {
    fake,
    engine: openEngine(fake.kubeconfig),
    mayWrite: true,
    answer: { salt: 'c2FsdA==' },
    port: postgres.port,
    records,
    logs,
    store: null,
    domain: null,
    images: { 17: 'postgres:17' },
    placed: {},
    boundsCpu: false,
    walStorageClass: null,
    imagePull: null,
    changed,
    openEngine: () => openEngine(),
    close: async () => {
      await cloud.engine.close();
      await postgres.close();
      await cloud.fake.close();
      await rm(directory, { recursive: true });
    },
  };
  return cloud;
}

/** A spec, whose first password the server has. */
export async function newSpec(
  cloud: Cloud,
  change: Partial<ServiceSpec> = {},
): Promise<ServiceSpec> {
  const firstVerifier = await scramVerifier('password');
  cloud.answer = { salt: saltOf(firstVerifier) ?? '' };
  return {
    id: ID,
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
    endpoint: { host: '127.0.0.1', port: cloud.port },
    firstVerifier,
    origin: null,
    recovery: null,
    upgrade: null,
    pooler: null,
    ha: null,
    vpc: null,
    allowedNetworks: null,
    set: null,
    ...change,
  };
}

/** Makes steps until one has this name or outcome. @returns the steps that were made */
export async function untilStep(
  cloud: Cloud,
  spec: ServiceSpec,
  wanted: string,
): Promise<string[]> {
  const steps: string[] = [];
  for (let round = 0; round < 600; round += 1) {
    const verdict = await cloud.engine.lifecycle.converge(spec, async () => undefined);
    if (verdict.did !== null) steps.push(verdict.did);
    if (verdict.did === wanted || verdict.outcome === wanted) return steps;
    if (verdict.outcome === 'failed') throw new Error(verdict.reason);
    await sleep(20);
  }
  throw new Error(`no ${wanted}: ${steps.join(', ')}`);
}

/** Waits until a converge waits for the operator. */
export async function untilAwaited(cloud: Cloud, spec: ServiceSpec): Promise<void> {
  for (let round = 0; round < 600; round += 1) {
    const verdict: Verdict = await cloud.engine.lifecycle.converge(spec, async () => undefined);
    if (verdict.detail?.startsWith('CloudNativePG: ') === true) return;
    await sleep(20);
  }
  throw new Error('it waits for nothing');
}

export async function untilRemoved(cloud: Cloud, id = ID): Promise<void> {
  for (let outcome = ''; outcome !== 'settled'; await sleep(20)) {
    const verdict = await cloud.engine.lifecycle.remove(id, null, async () => undefined);
    ({ outcome } = verdict);
    if (verdict.outcome === 'failed') throw new Error(verdict.reason);
  }
}

/** Acts as the operator for a Cluster that must run. @param primary the name of its pod ends so */
export function runServers(cloud: Cloud, count = 1, primary = 1, id = ID): void {
  const labels = { ...labelsOf(id), 'howdah.io/region': 'kube' };
  const annotations = { 'kubectl.kubernetes.io/restartedAt': '0' };
  for (let ordinal = 1; ordinal <= count; ordinal += 1)
    cloud.fake.put(podAt(ordinal, id), {
      metadata: { labels, annotations },
      spec: { containers: [{ name: 'postgres', resources: { limits: { memory: '2Gi' } } }] },
      status: { conditions: [{ type: 'Ready', status: 'True' }] },
    });
  const currentPrimary = `s-${id}-${primary}`;
  cloud.fake.put(clusterOf(id), {
    ...cloud.fake.objects.get(clusterOf(id)),
    status: {
      phase: HEALTHY,
      readyInstances: count,
      currentPrimary,
      targetPrimary: currentPrimary,
    },
  });
}

/** Acts as the operator for a hibernated Cluster. */
export function stopServers(cloud: Cloud): void {
  cloud.fake.take(POD);
  const conditions = [{ type: 'cnpg.io/hibernation', status: 'True' }];
  cloud.fake.put(CLUSTER, {
    ...cloud.fake.objects.get(CLUSTER),
    status: { phase: HEALTHY, conditions, currentPrimary: `s-${ID}-1` },
  });
}

export async function until(holds: () => Promise<boolean>): Promise<void> {
  for (let round = 0; round < 600; round += 1) {
    if (await holds()) return;
    await sleep(20);
  }
  throw new Error('not in time');
}
