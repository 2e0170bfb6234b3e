import { expect, test } from 'vitest';
import type { MovedData, MoveTarget } from '../../engine/moves.ts';
import { whyNotMoved, type Moving } from './move.ts';

const SERVICE: Moving = {
  auto_suspend_seconds: null,
  has_gateway: false,
  host: 'db.example.com',
  pooler: false,
  preload: [],
  read_replica_sets: [],
  storage_gb: 10,
  vpc_id: null,
};
const DATA: MovedData = {
  architecture: 'amd64',
  bytes: 1e9,
  roles: ['tsdbadmin', 'howdah'],
  extensions: [
    { name: 'plpgsql', version: '1.0' },
    { name: 'hstore', version: '1.7' },
  ],
  readOnlyRoles: [],
  systemSettings: [],
  slots: [],
  hasDatabase: true,
  unreadDatabases: [],
  unlogged: [],
  collations: [],
};
const TARGET: MoveTarget = {
  place: 'cluster',
  architectures: ['amd64'],
  modules: ['plpgsql', 'hstore'],
  extensions: { 17: ['vector'], 18: ['timescaledb'] },
  versions: null,
  ownRoles: ['postgres'],
  missing: [],
};
const VECTOR = { name: 'vector', version: '0.8.0' };
const POSTGRES = { version: '17', major: 17 };

type Change = {
  service?: Partial<Moving>;
  data?: Partial<MovedData>;
  target?: Partial<MoveTarget>;
};

const reasons = ({ service, data, target }: Change): string[] =>
  whyNotMoved({ ...SERVICE, ...service }, POSTGRES, { ...DATA, ...data }, { ...TARGET, ...target });

const set = {
  id: 'setsetsets',
  name: 'reads',
  nodes: 1,
  cpu_millis: 500,
  memory_gbs: 2,
  metadata: { environment: 'DEV' },
  purpose: 'reports',
  endpoint: { host: '127.0.0.1', port: 20_001 },
  status: 'active',
} as const;

test('a service with nothing in the way can move', () => {
  expect(reasons({})).toEqual([]);
});

test.each<[Change, string]>([
  [{ service: { read_replica_sets: [set] } }, 'it has read replica sets'],
  [{ service: { has_gateway: true } }, 'it has replicas, or had some'],
  [{ service: { pooler: true } }, 'it has a connection pooler'],
  [{ service: { vpc_id: '1000' } }, 'it is in a VPC'],
  [{ service: { preload: ['pgaudit'] } }, 'it loads the libraries of "pgaudit"'],
  [{ data: { architecture: 'arm64' } }, 'its data is of arm64'],
  [{ target: { architectures: ['amd64', 'arm64'] } }, 'machines of the target are of "arm64"'],
  [
    { data: { extensions: [{ name: 'timescaledb', version: '2.19.3' }] } },
    'it has the extensions "timescaledb", which its image there is not said to have',
  ],
  [
    {
      data: { extensions: [VECTOR] },
      target: {
        versions: [
          { name: 'vector', version: '0.8.1' },
          { ...VECTOR, name: 'cube' },
        ],
      },
    },
    'it has the extensions "vector 0.8.0", and the image of the copy does not have that version',
  ],
  [{ data: { roles: ['postgres'] } }, 'it has the roles "postgres"'],
  [{ service: { host: '127.0.0.1' } }, 'its endpoint is at 127.0.0.1'],
  [{ service: { host: 'localhost' } }, 'its endpoint is at localhost'],
  [{ data: { readOnlyRoles: ['reports'] } }, 'nothing enforces there: "reports"'],
  [{ data: { systemSettings: ['work_mem'] } }, 'settings of ALTER SYSTEM "work_mem"'],
  [{ data: { slots: ['cdc'] } }, 'it has the logical slots "cdc"'],
  [{ data: { hasDatabase: false } }, 'it has no database "tsdb"'],
  [{ data: { unreadDatabases: ['closed'] } }, 'it has the databases "closed"'],
  [{ data: { unlogged: ['queue'] } }, 'it has the unlogged tables or sequences "queue"'],
  [{ data: { collations: ['de_DE'] } }, 'the collations "de_DE"'],
  [{ data: { bytes: 9.1e9 } }, 'need a volume of 11 GB, and it would get 10 GB'],
  [{ target: { missing: ['storage class'] } }, 'the target lacks "storage class"'],
])('each obstacle is a reason of its own: %j', (change, reason) => {
  expect(reasons(change)).toEqual([expect.stringContaining(reason)]);
});

test.each([{ versions: null }, { versions: [VECTOR] }])(
  'extensions of the image go along: %j',
  (target) => {
    expect(reasons({ data: { extensions: [VECTOR] }, target })).toEqual([]);
  },
);

test('a full volume but for a tenth is large enough', () => {
  expect(reasons({ data: { bytes: 9e9 } })).toEqual([]);
});

test('every reason is named, first what the target has not', () => {
  const service = { ...SERVICE, pooler: true, has_gateway: true };
  expect(whyNotMoved(service, { missing: 'no image' }, DATA, TARGET)).toEqual([
    'no image',
    expect.stringContaining('replicas'),
    expect.stringContaining('pooler'),
  ]);
});

test('names of tenants are quoted, cut and counted', () => {
  const unlogged = Array.from({ length: 7 }, (_, index) => `${index}"\n${'x'.repeat(100)}`);
  const [reason = ''] = reasons({ data: { unlogged } });
  expect(reason).toContain(String.raw`"0\"\nxxx`);
  expect(reason).toContain(' and 2 more, ');
  expect(reason).not.toContain('\n');
  expect(reason.length).toBeLessThan(600);
});
