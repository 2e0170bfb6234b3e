/** Decisions about read replica sets, the Cluster of one, and why it cannot follow. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { ServiceSpec } from '../../spec.ts';
import { setManifest, reasonIn } from './set.ts';
import { decide, type Known, desiredOfSet } from './decide.ts';
import { name, NOTHING, PAUSED, REACHED, server, SPEC, UNREACHED, up } from './decide.testing.ts';
import { desiredOf, restartMarkOf, writeDesired } from './desired-state.ts';
import type { ClusterState, Observed } from './state.ts';

const PARENT = 'klmno67890';
const FOLLOWS = { parent: PARENT, nodes: 2, purpose: 'reports' } as const;
const SET: ServiceSpec = { ...SPEC, firstVerifier: null, set: FOLLOWS };
const parent = up(SPEC).cluster;
const LARGE = up({ ...SPEC, size: { cpuMillis: 4000, memoryGbs: 16 } }).cluster;

function following(change: Partial<ClusterState> = {}, of = parent): Observed {
  const desired = desiredOfSet(SET, FOLLOWS, of, null);
  const { cluster } = up(SPEC);
  if (cluster === null) throw new Error('it is up');
  const mark = restartMarkOf(desired);
  return {
    ...up(SPEC),
    parent: of,
    cluster: { ...cluster, desired, instances: 2, ready: 2, provisioned: false, ...change },
    servers: [0, 1].map((n) => server(n, { restarts: mark })),
  };
}

const LOST: Known = { ...UNREACHED, cannotFollow: 'it needs WAL that its service removed' };

test.each<[string, ServiceSpec, Observed, Known, string]>([
  ['all is well', SET, following(), REACHED, 'settled'],
  ['new', SET, { ...NOTHING, parent }, UNREACHED, 'create Cluster'],
  [
    'its Cluster is gone',
    { ...SET, provisioned: true },
    { ...NOTHING, parent },
    UNREACHED,
    'create Cluster',
  ],
  ['its pods of before are ending', SET, { ...following(), cluster: null }, UNREACHED, 'wait'],
  ['new, of a paused service', SET, { ...NOTHING, parent: up(PAUSED).cluster }, UNREACHED, 'wait'],
  ['new, of a service that is gone', SET, NOTHING, UNREACHED, 'wait'],
  ['new, to be paused', { ...SET, power: 'paused' }, { ...NOTHING, parent }, UNREACHED, 'settled'],
  ['its service is larger', SET, { ...following(), parent: LARGE }, REACHED, 'restart PostgreSQL'],
  ['its service is smaller again', SET, { ...following({}, LARGE), parent }, REACHED, 'settled'],
  [
    'other networks',
    { ...SET, allowedNetworks: ['10.0.0.0/8'] },
    following(),
    REACHED,
    'restart PostgreSQL',
  ],
  ['another node', { ...SET, set: { ...FOLLOWS, nodes: 3 } }, following(), REACHED, 'add node'],
  ['fewer nodes', { ...SET, set: { ...FOLLOWS, nodes: 1 } }, following(), REACHED, 'remove node'],
  ['it cannot follow', SET, following(), LOST, 'remove nodes that cannot follow'],
  [
    'it cannot follow, in a step',
    SET,
    following({ awaited: 'start PostgreSQL' }),
    LOST,
    'remove nodes that cannot follow',
  ],
  [
    'it cannot follow, and is stopped',
    { ...SET, power: 'paused' },
    following(),
    LOST,
    'stop PostgreSQL',
  ],
])('%s', (_, spec, observed, known, wanted) => {
  expect(name(decide(spec, observed, known))).toBe(wanted);
});

test('a volume is at least as large as that of the service, and never shrinks', () => {
  const grown = up({ ...SPEC, storageGb: 40 }).cluster;
  const desired = desiredOfSet(SET, FOLLOWS, grown, null);
  expect(desired.storageGb).toBe(40);
  expect(desiredOfSet(SET, FOLLOWS, parent, desired).storageGb).toBe(40);
});

test('a set archives nothing, whatever its region has and its service does', () => {
  const archiving = up(SPEC, { desired: desiredOf(SPEC, null, null, true) }).cluster;
  const known = { ...REACHED, canArchive: true };
  const made = decide(SET, { ...NOTHING, parent: archiving }, known);
  expect(made).toMatchObject({ kind: 'write', name: 'create Cluster' });
  expect(Object(made).desired).not.toHaveProperty('archives');
  expect(name(decide(SET, following({}, archiving), known))).toBe('settled');
  const restarted = decide({ ...SET, restarts: 1 }, following({}, archiving), known);
  expect(restarted).toMatchObject({ name: 'restart PostgreSQL' });
  expect(Object(restarted).desired).not.toHaveProperty('archives');
});

test('a set is a replica cluster that nothing here promotes', async () => {
  const desired = desiredOfSet(SET, FOLLOWS, parent, null);
  const { metadata, spec } = setManifest({
    id: SPEC.id,
    projectId: 'proj123456',
    region: { code: 'kube', storageClass: null },
    image: 'pg:17',
    placement: {},
    pulls: false,
    walClass: null,
    bound: false,
    size: SPEC.size,
    storageGb: 10,
    running: true,
    nodePort: 30_001,
    parameters: {},
    preload: [],
    networks: null,
    isPooled: false,
    restartMark: restartMarkOf(desired),
    desired: writeDesired(desired),
    parent: PARENT,
    nodes: 2,
    maximumLagBytes: 1_000_000,
  });
  expect(metadata.name).toBe(`r-${SPEC.id}`);
  expect(spec).toMatchObject({
    instances: 2,
    replica: { enabled: true, source: `s-${PARENT}` },
    bootstrap: { pg_basebackup: { source: `s-${PARENT}` } },
    managed: { services: { additional: [{ selectorType: 'r' }] } },
    probes: { readiness: { type: 'streaming', maximumLag: '1000000' } },
  });
  // The roles of a set are those of the service, which a standby cannot change.
  expect(Object(spec).managed).not.toHaveProperty('roles');
  const folder = join(import.meta.dirname, '..');
  const files = await readdir(folder, { recursive: true });
  const sources = files.filter((file) => file.endsWith('.ts') && !file.includes('.test'));
  expect(sources.length).toBeGreaterThan(40);
  const written = [];
  for (const file of sources) {
    const text = await readFile(join(folder, file), 'utf8');
    written.push(
      ...(text.match(/\breplica: [^,;]*/g) ?? []),
      ...(text.match(/promotionToken/g) ?? []),
    );
  }
  // One is that of a set, the other that of the copy of a service that moves.
  expect(written).toEqual(Array(2).fill('replica: { enabled: true'));
});

const line = (message: string, backend_type = 'walreceiver', error_severity = 'FATAL'): string =>
  JSON.stringify({
    level: 'info',
    record: { log_time: '', error_severity, message, backend_type },
  });

const GONE = 'requested WAL segment 0000 has already been removed';

test.each([
  [`could not receive data from WAL stream: ERROR:  ${GONE}`, 'walreceiver'],
  ["requested starting point 0/3 on timeline 1 is not in this server's history", 'walreceiver'],
  ['highest timeline 1 of the primary is behind recovery timeline 2', 'walreceiver'],
  ['new timeline 2 forked off from current database system timeline 1 before', 'startup'],
])('a node that says %j can never follow', (message, backend) => {
  const log = ['starting', line(message, backend), line('terminating', 'walreceiver')].join('\n');
  expect(reasonIn(log)).toContain(message.slice(0, 40));
});

test('sessions of users and other programs give no reason, nor does a primary that is away', () => {
  const away = 'could not connect to the primary server: connection refused';
  const log = [line(GONE, 'client backend', 'LOG'), GONE, '{', line(away)].join('\n');
  expect(reasonIn(log)).toBeNull();
});
