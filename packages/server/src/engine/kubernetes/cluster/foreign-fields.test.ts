/** Changes of a Cluster by others than Howdah: a warning shows them, a restart takes them back. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { ServiceSpec } from '../../spec.ts';
import {
  CLUSTER,
  ID,
  newSpec,
  openCloud,
  runServers,
  until,
  untilAwaited,
  untilStep,
  type Cloud,
} from '../engine.testing.ts';
import { changedFields, describeForeign, foreignFields } from './foreign-fields.ts';

let cloud: Cloud;
beforeEach(async () => {
  cloud = await openCloud();
});
afterEach(async () => cloud.close());

const found = () => Object(cloud.fake.objects.get(CLUSTER));
const keptWal = () => found().spec.postgresql.parameters.wal_keep_size;

/** Acts as somebody who edits the Cluster. */
function edit(value: string): void {
  const { metadata, spec } = found();
  const { postgresql } = spec;
  const field = { 'f:postgresql': { 'f:parameters': { 'f:wal_keep_size': {} } } };
  const fieldsV1 = { 'f:spec': { ...field, 'f:logLevel': {} } };
  const parameters = { ...postgresql.parameters, wal_keep_size: value };
  cloud.fake.put(CLUSTER, {
    ...found(),
    metadata: { ...metadata, managedFields: [{ manager: 'kubectl-edit', fieldsV1 }] },
    spec: { ...spec, logLevel: 'debug', postgresql: { ...postgresql, parameters } },
  });
}

const TAKE_BACK = 'take back fields that others have set';
const warnings = () => cloud.engine.observe.warnings(ID);
const changed = (fields: string) => [
  expect.objectContaining({
    code: 'CLUSTER_CHANGED',
    message: expect.stringContaining(`others have changed its Cluster: ${fields}. A restart`),
  }),
];
const CHANGE =
  'spec.postgresql.parameters.wal_keep_size: "1MB" of kubectl-edit in place of "625MB"';

async function editAndWarn(spec: ServiceSpec): Promise<void> {
  edit('1MB');
  await until(async () => {
    await untilStep(cloud, spec, 'settled');
    return (await warnings()).length > 0;
  });
}

/** A service that runs, and that somebody has changed. */
async function settledAndEdited() {
  const spec = { ...(await newSpec(cloud)), provisioned: true };
  await untilStep(cloud, { ...spec, provisioned: false }, 'create Cluster');
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  expect(await warnings()).toEqual([]);
  expect(keptWal()).toBe('625MB');
  await editAndWarn(spec);
  expect(await warnings()).toEqual(changed(CHANGE));
  return spec;
}

test('a warning has each field that Howdah writes otherwise, until it is as before', async () => {
  const spec = await settledAndEdited();
  edit('625MB');
  await until(async () => {
    await untilStep(cloud, spec, 'settled');
    return (await warnings()).length === 0;
  });
});

test('a restart takes them back once, and other changes do not', async () => {
  const spec = await settledAndEdited();
  const larger = { ...spec, storageGb: 20 };
  expect(await untilStep(cloud, larger, 'grow volume')).toEqual(['grow volume']);
  await untilStep(cloud, larger, 'settled');
  await until(async () => (await warnings()).length === 0);
  await editAndWarn(larger);
  const restarted = { ...larger, restarts: 1 };
  await until(async () => {
    const verdict = await cloud.engine.lifecycle.converge(restarted, async () => undefined);
    if (verdict.did !== TAKE_BACK) return false;
    expect(verdict.detail).toContain('"1MB" of kubectl-edit in place of');
    return true;
  });
  expect(keptWal()).not.toBe('1MB');
  // Another program may set it again at once.
  const seen = cloud.changed.length;
  edit('1MB');
  await until(async () => cloud.changed.length > seen);
  const verdict = await cloud.engine.lifecycle.converge(restarted, async () => undefined);
  expect(verdict.did).not.toBe(TAKE_BACK);
  await untilAwaited(cloud, restarted);
  expect(keptWal()).not.toBe('1MB');
});

test('a change that conflicts names the restart, which takes fields over', async () => {
  const spec = { ...(await newSpec(cloud)), provisioned: true };
  await untilStep(cloud, { ...spec, provisioned: false }, 'create Cluster');
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  cloud.fake.manageClusters();
  const larger = { ...spec, storageGb: 20 };
  expect(await cloud.engine.lifecycle.converge(larger, async () => undefined)).toMatchObject({
    outcome: 'failed',
    reason: expect.stringContaining('; a restart takes the fields of others back'),
  });
  await untilAwaited(cloud, { ...larger, restarts: 1 });
  expect(found().spec.storage.size).toBe('20G');
});

test('fields are those of the spec, of others, with their values', () => {
  const managed = (manager: string, spec: object, subresource?: string) => ({
    manager,
    fieldsV1: { 'f:spec': spec },
    ...(subresource === undefined ? {} : { subresource }),
  });
  const spec = { instances: 2, env: [{ name: 'PGPASSWORD', value: 'secret' }], a: { b: 'x' } };
  const fields = foreignFields(
    [
      managed('howdah', { 'f:instances': {} }),
      managed('howdah-state', { 'f:instances': {} }),
      managed('manager', { 'f:instances': {} }, 'status'),
      managed('edit', { 'f:instances': {}, 'f:a': { '.': {}, 'f:b': {} } }),
      managed('tool', { 'f:env': {}, 'f:gone': {}, 'f:__proto__': { 'f:x': {} } }),
    ],
    spec,
  );
  expect(describeForeign(fields)).toEqual([
    'edit has set spec.instances: 2, spec.a.b: "x"',
    'tool has set spec.env: a list or an object, spec.gone: absent, spec.__proto__.x: absent',
  ]);
  const env = [{ value: 'secret', name: 'PGPASSWORD' }];
  expect(changedFields(fields, { instances: 2, env })).toEqual([]);
  expect(changedFields(fields, { instances: 1, a: { b: 'x' }, env: [] })).toEqual([
    'spec.instances: 2 of edit in place of 1',
    'spec.env: a list or an object of tool in place of a list or an object',
  ]);
});
