/** Directories of services that the metadata database does not know become services again. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, readFile, rename, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Client } from 'pg';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { forget as forgetIn } from './crash-backup-scenes.ts';
import { connectTo, install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { openMetadata } from './metadata.ts';
import { untilExpected } from './until.ts';

let cloud: Installation;
beforeAll(async () => {
  cloud = await install();
});
afterEach(() => cloud.tidy());
afterAll(async () => expect(await cloud?.destroy()).toEqual([]));

type Made = Service & { initial_password: string };

const rootOf = (id: string) => join(cloud.home, 'data', 'services', id);
const adopt = (directory: string) => cloud.request('POST', '/services/adopt', { directory });

/** A service with a row in it. */
async function made(name: string): Promise<Made> {
  const service = await cloud.create({ name, service_type: 'POSTGRES' });
  const client = await connectTo(cloud, service, service.initial_password);
  await client.query('create table kept as select 42 as answer');
  await client.end();
  return service;
}

const forget = (...ids: string[]) => forgetIn(cloud, ...ids);

async function answerIn(client: Client): Promise<unknown> {
  const { rows } = await client.query<{ answer: number }>('table kept');
  return rows[0]?.answer;
}

/** Reads the row with the former password. */
async function readKept(service: Service, password: string): Promise<unknown> {
  const client = await connectTo(cloud, service, password);
  const answer = await answerIn(client);
  await client.end();
  return answer;
}

test('a server that runs is taken over: no session ends, port and password stay', async () => {
  const service = await made('orders');
  const { service_id: id, initial_password: password, endpoint } = service;
  const client = await connectTo(cloud, service, password);
  await forget(id);
  const { stdout } = await cloud.cli('audit');
  const command = `howdah adopt ${rootOf(id)}`;
  expect(stdout).toContain(`directory of ${id}, which the metadata database does not know`);
  expect(stdout).toContain(command);
  const adopted = await cloud.cli('adopt', rootOf(id));
  expect(adopted, adopted.stderr).toMatchObject({ code: 0 });
  expect(adopted.stderr).toContain(`assumed: name: ${id}`);
  expect(adopted.stderr).toContain('clients of all networks may connect');
  expect(await cloud.get(id)).toMatchObject({ status: 'READY', name: id, endpoint });
  expect(await answerIn(client)).toBe(42);
  await client.end();
  expect(await cloud.operations(id)).toMatchObject([{ kind: 'adopt', status: 'succeeded' }]);
});

test('data of a stopped server becomes a service with the name that is asked for', async () => {
  const service = await made('orders');
  const { service_id: id, initial_password: password } = service;
  await cloud.request('POST', `/services/${id}/stop`);
  await cloud.until(id, 'PAUSED');
  await forget(id);
  const planned = await cloud.cli('adopt', rootOf(id), '--dry-run');
  expect(planned.stdout).toContain('start PostgreSQL');
  expect(planned.stdout + planned.stderr).toContain('service_type: POSTGRES');
  expect((await cloud.request('GET', `/services/${id}`)).status).toBe(404);
  const answer = await cloud.request('POST', '/services/adopt', {
    directory: rootOf(id),
    name: 'orders again',
  });
  expect(answer).toMatchObject({
    status: 202,
    body: { service_id: id, name: 'orders again', status: 'QUEUED', endpoint: service.endpoint },
  });
  expect(Reflect.get(Object(answer.body), 'assumed')).toContain('environment: DEV');
  expect(Reflect.has(Object(answer.body), 'initial_password')).toBe(false);
  const ready = await cloud.until(id, 'READY');
  expect(await readKept(ready, password)).toBe(42);
  const [operation] = await cloud.operations(id);
  expect(operation?.steps.map(({ name }) => name)).toContain('start PostgreSQL');
});

test(
  'an adopted service is closed from the start, to an allow list or a VPC',
  { tags: 'slow' },
  async () => {
    const service = await made('orders');
    const { service_id: id, initial_password: password } = service;
    const created = async (path: string, body: object): Promise<unknown> => {
      const { status, body: answer } = await cloud.request('POST', path, body);
      expect(status, JSON.stringify(answer)).toBe(201);
      return answer;
    };
    const list = await created('/allow-lists', {
      description: 'elsewhere',
      cidr_blocks: ['203.0.113.0/24'],
    });
    const vpc = await created('/vpcs', {
      name: 'inside',
      cidr: '10.77.0.0/16',
      region_code: service.region_code,
    });
    const listId = String(Reflect.get(Object(list), 'allow_list_id'));
    await forget(id);
    const unknown = { directory: rootOf(id), allow_list_id: 'aaaaaaaaaa' };
    expect((await cloud.request('POST', '/services/adopt', unknown)).status).toBe(404);
    const listed = await cloud.cli('adopt', rootOf(id), '--allow-list', 'elsewhere');
    expect(listed, listed.stderr).toMatchObject({ code: 0 });
    expect(listed.stderr).not.toContain('clients of all networks');
    expect(await cloud.get(id)).toMatchObject({ status: 'READY', allow_list_id: listId });
    await expect(connectTo(cloud, service, password)).rejects.toThrow(/pg_hba/);
    await forget(id);
    const both = await cloud.cli('adopt', rootOf(id), '--vpc', 'inside', '--allow-list', listId);
    expect(both, both.stderr).toMatchObject({ code: 0 });
    expect(await cloud.get(id)).toMatchObject({
      status: 'READY',
      allow_list_id: listId,
      vpc_endpoint: { vpc_id: Reflect.get(Object(vpc), 'id') },
    });
    await expect(connectTo(cloud, service, password)).rejects.toThrow();
  },
);

test(
  'an upgrade is shown with its version and time while its former data is there',
  { tags: 'slow' },
  async () => {
    const { service_id: id } = await made('orders');
    await cloud.request('POST', `/services/${id}/stop`);
    await cloud.until(id, 'PAUSED');
    const marker = join(rootOf(id), 'howdah.json');
    const facts: object = JSON.parse(await readFile(marker, 'utf8'));
    await writeFile(marker, JSON.stringify({ ...facts, upgrade: 'upgradedid' }));
    await forget(id);
    expect((await adopt(rootOf(id))).status).toBe(202);
    expect(await cloud.until(id, 'READY')).not.toHaveProperty('upgraded');
    const undone = await cloud.request('POST', `/services/${id}/upgrade`, {
      undo: true,
      confirm: id,
    });
    expect(undone).toMatchObject({ status: 400, body: { code: 'INVALID_STATE' } });
    const former = join(rootOf(id), 'aside', 'upgradedid');
    await mkdir(join(former, '0'), { recursive: true, mode: 0o700 });
    await writeFile(join(former, '0', 'PG_VERSION'), '15\n');
    const at = new Date(Date.now() - 3_600_000);
    await utimes(former, at, at);
    await forget(id);
    expect((await adopt(rootOf(id))).status).toBe(202);
    expect(await cloud.until(id, 'READY')).toMatchObject({
      upgraded: { from: '15', at: at.toISOString() },
    });
  },
);

test('a port that another service has by now is not taken from it', async () => {
  const service = await made('orders');
  const { service_id: id, initial_password: password, endpoint } = service;
  await cloud.request('POST', `/services/${id}/stop`);
  await cloud.until(id, 'PAUSED');
  await forget(id);
  const { db, close } = await openMetadata(cloud.home);
  await db
    .updateTable('regions')
    .set({ last_port: endpoint.port - 1 })
    .execute();
  await close();
  const other = await cloud.create({ name: 'other', service_type: 'POSTGRES' });
  expect(other.endpoint.port).toBe(endpoint.port);
  // Nothing listens there now, and it is promised all the same.
  await cloud.request('POST', `/services/${other.service_id}/stop`);
  await cloud.until(other.service_id, 'PAUSED');
  const { body } = await adopt(rootOf(id));
  expect(JSON.stringify(body)).toContain('since the former one is not free');
  const ready = await cloud.until(id, 'READY');
  expect(ready.endpoint.port).not.toBe(endpoint.port);
  expect(await readKept(ready, password)).toBe(42);
});

test(
  'the control plane is killed meanwhile: asked again, the service is there',
  { tags: 'slow' },
  async () => {
    const { service_id: id, initial_password: password } = await made('orders');
    await cloud.request('POST', `/services/${id}/stop`);
    await cloud.until(id, 'PAUSED');
    await forget(id);
    const records = await openMetadata(cloud.home);
    const first = await records.holdingReconciler(async () => {
      const answer = await adopt(rootOf(id));
      const again = await adopt(rootOf(id));
      expect(again.status).toBe(202);
      expect(again.headers.get('operation-id')).toBe(answer.headers.get('operation-id'));
      await cloud.stop('SIGKILL');
      return answer;
    });
    await records.close();
    expect(first).toMatchObject({ status: 202, body: { status: 'QUEUED' } });
    await cloud.up();
    const again = await adopt(rootOf(id));
    expect([202, 409]).toContain(again.status);
    const ready = await cloud.until(id, 'READY');
    expect(await readKept(ready, password)).toBe(42);
    expect(await adopt(rootOf(id))).toMatchObject({
      status: 409,
      body: { code: 'CONFLICT', message: expect.stringContaining('READY') },
    });
  },
);

test('calls at the same time adopt a directory once', async () => {
  const { service_id: id } = await made('orders');
  await forget(id);
  const records = await openMetadata(cloud.home);
  const answers = await records.holdingReconciler(() =>
    Promise.all(Array.from({ length: 8 }, () => adopt(rootOf(id)))),
  );
  await records.close();
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([202]));
  expect(new Set(answers.map(({ headers }) => headers.get('operation-id'))).size).toBe(1);
  await cloud.until(id, 'READY');
});

/** Why a directory is not adopted; fails if it is, or if it is the fault of the installation. */
async function refusal(directory: string): Promise<string> {
  const { status, body } = await adopt(directory);
  expect([400, 409, 422], JSON.stringify(body)).toContain(status);
  return String(Reflect.get(Object(body), 'message'));
}

test('paths, known services and wrong markers are refused with the reason', async () => {
  const { service_id: id } = await made('orders');
  const root = rootOf(id);
  expect(await refusal(root)).toContain('"orders" is READY');
  await cloud.request('DELETE', `/services/${id}`);
  await untilExpected('the directory is refused as that of a known service', async () =>
    expect((await adopt(root)).status).toBe(409),
  );
  await untilExpected('the refusal says that the service is deleted', async () =>
    expect(await refusal(root)).toContain('which is deleted: howdah service restore'),
  );
  const long = rootOf('a'.repeat(300));
  const elsewhere = [cloud.home, '/', 'orders', long, `${root}/data`, `${root}/../../x`];
  for (const path of elsewhere) expect(await refusal(path)).toContain('howdah audit lists');
  expect(await refusal(`${root}/data/..`)).toContain('which is deleted');
  expect(await refusal(rootOf('aaaaaaaaaa'))).toContain('there is no such directory');
  await cloud.request('POST', `/services/${id}/restore`);
  await cloud.until(id, 'READY');
  await cloud.request('POST', `/services/${id}/stop`);
  await cloud.until(id, 'PAUSED');
  await forget(id);
  const marker = join(root, 'howdah.json');
  const written = await readFile(marker, 'utf8');
  const facts: object = JSON.parse(written);
  const withMarker = async (change: object) => {
    await writeFile(marker, JSON.stringify({ ...facts, ...change }));
    const said = await refusal(root);
    await writeFile(marker, written);
    return said;
  };
  expect(await withMarker({ id: 'aaaaaaaaaa' })).toContain('names the service aaaaaaaaaa: rename');
  expect(await withMarker({ id: '../../../x' })).toContain('names no service');
  expect(await withMarker({ upgrade: '../../x' })).toContain('names no service');
  expect(await withMarker({ provisioned: false })).toContain('never provisioned');
  expect(await withMarker({ provisioned: 'yes' })).toContain('no marker');
  expect(await withMarker({ userOf: 'aaaaaaaaaa' })).toContain('several instances');
  expect(await withMarker({ exchange: { upgrade: 'x', installation: '18-npm' } })).toContain(
    'an upgrade',
  );
  expect(await withMarker({ installation: '16-system' })).toContain('PG_VERSION another version');
  const version = join(root, 'data', 'PG_VERSION');
  const major = await readFile(version, 'utf8');
  await writeFile(version, '14\n');
  expect(await withMarker({ installation: '14-system' })).toContain('PostgreSQL 14 is needed');
  await writeFile(version, major);
  expect((await adopt(root)).status).toBe(202);
  await cloud.until(id, 'READY');
});

test('links, pipes, shared directories and data in use are refused', async () => {
  const { service_id: id } = await made('orders');
  await cloud.request('POST', `/services/${id}/stop`);
  await cloud.until(id, 'PAUSED');
  await forget(id);
  const [root, aside] = [rootOf(id), `${rootOf(id)}-aside`];
  const replaced = async (name: string, plant: (path: string) => Promise<unknown>) => {
    const path = join(root, name);
    await rename(path, aside);
    await plant(path);
    const said = await refusal(root);
    await rm(path, { recursive: true });
    await rename(aside, path);
    return said;
  };
  expect(await replaced('howdah.json', (path) => symlink(aside, path))).toContain('symbolic link');
  expect(await replaced('config', (path) => symlink(aside, path))).toContain('symbolic link');
  expect(await replaced('data', (path) => symlink(aside, path))).toContain('symbolic link');
  expect(await replaced('howdah.json', (path) => promisify(execFile)('mkfifo', [path]))).toContain(
    'no marker',
  );
  expect(await replaced('data', (path) => mkdir(path))).toContain('no data');
  await rename(root, aside);
  await symlink(aside, root);
  expect(await refusal(root)).toContain('is not a directory');
  await rm(root);
  await rename(aside, root);
  await mkdir(join(root, 'members', '1'), { recursive: true });
  expect(await refusal(root)).toContain('several instances');
  await rm(join(root, 'members'), { recursive: true });
  const snapshot = join(root, 'snapshots', 'other');
  await symlink(aside, snapshot);
  expect(await refusal(root)).toContain('other is not a directory');
  await rm(snapshot);
  await mkdir(snapshot);
  await symlink(aside, join(snapshot, 'data'));
  expect(await refusal(root)).toContain('snapshots/other/data is a symbolic link');
  await rm(snapshot, { recursive: true });
  await chmod(join(root, 'config'), 0o777);
  expect(await refusal(root)).toContain('other users can write into config');
  await chmod(join(root, 'config'), 0o750);
  const user = spawn('sleep', ['1000'], { cwd: join(root, 'data') });
  await once(user, 'spawn');
  expect(await refusal(root)).toContain(`process ${user.pid} works in its data`);
  user.kill();
  await once(user, 'exit');
  expect((await adopt(root)).status).toBe(202);
  await cloud.until(id, 'READY');
});
