import { expect, test } from 'vitest';
import type { ServiceSpec } from '../../spec.ts';
import { clusterManifest } from './manifest.ts';
import { decide } from './decide.ts';
import { CLUSTER_INPUT, name, NOTHING, SPEC, UNREACHED, up } from './decide.testing.ts';
import { desiredOf } from './desired-state.ts';

const SOURCE = { host: 'db.example.com', port: 20_001 };
const COPY: ServiceSpec = { ...SPEC, move: { as: 'copy', source: SOURCE } };
const MOVED: ServiceSpec = { ...SPEC, provisioned: true };

test('a copy follows the service until it is promoted, and accepts no clients before', () => {
  expect(decide(COPY, NOTHING, UNREACHED)).toMatchObject({
    kind: 'write',
    name: 'create Cluster',
    desired: { source: SOURCE },
  });
  expect(decide(COPY, up(COPY, { provisioned: false }), UNREACHED).kind).toBe('settled');
  expect(decide(MOVED, up(COPY, { provisioned: false }), UNREACHED)).toMatchObject({
    kind: 'write',
    name: 'promote the copy',
    awaits: true,
    desired: desiredOf(MOVED),
  });
  expect(name(decide(MOVED, up(MOVED), UNREACHED))).toBe('connect');
  // A new one would be empty.
  expect(decide(MOVED, NOTHING, UNREACHED).kind).toBe('refuse');
});

test('a copy archives nothing while it follows, also where services do', () => {
  const known = { ...UNREACHED, canArchive: true };
  const made = (spec: ServiceSpec) => Object(decide(spec, NOTHING, known)).desired;
  expect(made(SPEC)).toHaveProperty('archives');
  expect(made(COPY)).not.toHaveProperty('archives');
});

test('a copy replicates as a superuser by TLS, and writes no roles', () => {
  const input = { ...CLUSTER_INPUT, snapshotClass: 'snapshots' } as const;
  const copy = clusterManifest({ ...input, source: SOURCE })['spec'];
  expect(copy).toMatchObject({
    replica: { enabled: true, source: 'moved' },
    bootstrap: { pg_basebackup: { source: 'moved' } },
    externalClusters: [
      {
        name: 'moved',
        connectionParameters: {
          host: 'db.example.com',
          port: '20001',
          user: 'postgres',
          sslmode: 'verify-full',
          tcp_user_timeout: '5000',
        },
        password: { name: `s-${SPEC.id}-move`, key: 'password' },
      },
    ],
  });
  expect(Object(copy).managed).not.toHaveProperty('roles');
  expect(copy).not.toHaveProperty('backup');
  const moved = clusterManifest({ ...input, source: null })['spec'];
  // A field that is left out is removed: that is its promotion.
  for (const field of ['replica', 'externalClusters']) expect(moved).not.toHaveProperty(field);
});
