/** A service whose Cluster somebody has deleted comes back from its archive. */
import { expect, test } from 'vitest';
import type { ServiceSpec } from '../../spec.ts';
import { clusterManifest, LATEST } from './manifest.ts';
import { decide } from './decide.ts';
import {
  CLUSTER_INPUT,
  name,
  NOTHING,
  REACHED,
  server,
  SPEC,
  UNREACHED,
  up,
} from './decide.testing.ts';
import { desiredOf } from './desired-state.ts';
import { planOf } from './plan.ts';

const LOST: ServiceSpec = { ...SPEC, provisioned: true };
const RECOVERED: ServiceSpec = {
  ...LOST,
  recovery: { id: 'recovery12', repository: null, at: null },
};
const ARCHIVED = { ...UNREACHED, canArchive: true, hasArchive: true };
const SOURCE = { parent: SPEC.id, snapshot: null, targetTime: LATEST } as const;
const RECOVERING = { ...desiredOf(RECOVERED, SOURCE, null, true), recovered: true } as const;

test('without a recovery, a lost Cluster is not made again, and the way back is named', () => {
  const why = (known: typeof ARCHIVED) => Object(decide(LOST, NOTHING, known)).why;
  expect(why(ARCHIVED)).toContain('howdah service recover');
  expect(why({ ...ARCHIVED, hasArchive: false })).toContain('a backup of the Kubernetes cluster');
});

test('a recovery makes the Cluster of its archive, once its pods of before have ended', () => {
  const ending = { ...NOTHING, servers: [server(0, { leaving: true })] };
  expect(decide(RECOVERED, ending, ARCHIVED).kind).toBe('wait');
  expect(decide(RECOVERED, NOTHING, ARCHIVED)).toMatchObject({
    name: 'create Cluster',
    detail: 'PostgreSQL 17 with its data of the object store',
    desired: RECOVERING,
  });
  // The bucket is gone from the region.
  expect(decide(RECOVERED, NOTHING, UNREACHED)).toMatchObject({ kind: 'wait', isObstacle: true });
});

test('once it runs, it is written without its source, and goes on in its archive', () => {
  const started = up(RECOVERED, { desired: RECOVERING, provisioned: false });
  const servers = started.servers.map((one) => ({ ...one, restarts: '0, recovered' }));
  const step = decide(RECOVERED, { ...started, servers }, ARCHIVED);
  expect(step).toMatchObject({ kind: 'write', name: 'end the recovery', awaits: true });
  const { desired } = Object(step);
  expect(desired).toMatchObject({ recovered: true, archives: true });
  expect(desired).not.toHaveProperty('parent');
  const ended = up(RECOVERED, { desired, provisioned: false });
  expect(name(decide(RECOVERED, ended, ARCHIVED))).toBe('connect');
  // The service was recovered before.
  const provisioned = up(LOST, { desired });
  expect(decide(LOST, provisioned, { ...ARCHIVED, isReachable: true }).kind).toBe('settled');
});

test('a Cluster that is there is left alone', () => {
  const there = up(RECOVERED, { desired: desiredOf(LOST) });
  expect(decide(RECOVERED, there, REACHED).kind).toBe('settled');
});

test('the Cluster recovers all of its own archive, which need not be empty', () => {
  const input = {
    ...CLUSTER_INPUT,
    archives: true,
    parent: SPEC.id,
    targetTime: LATEST,
    keepsArchive: true,
  } as const;
  const { metadata, spec } = clusterManifest(input);
  expect(metadata.annotations).toMatchObject({ 'cnpg.io/skipEmptyWalArchiveCheck': 'enabled' });
  expect(spec).toMatchObject({
    bootstrap: {
      recovery: { source: 'archive', secret: { name: `s-${SPEC.id}-password` } },
    },
    externalClusters: [{ name: 'archive', plugin: { parameters: { serverName: `s-${SPEC.id}` } } }],
  });
  expect(Object(spec).bootstrap.recovery).not.toHaveProperty('recoveryTarget');
});

test('the plan of a recovery has the steps that are made', () => {
  const existing = { ...NOTHING, snapshotClass: null, verified: null };
  expect(planOf(existing, 'recover', RECOVERED, false, RECOVERED.size)).toEqual([
    'create Cluster',
    'start PostgreSQL',
    'end the recovery',
    'connect',
  ]);
});
