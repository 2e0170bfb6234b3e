/** Tests of api-shapes.test.ts: calls on repositories. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { RecoveryKitSchema } from '@howdah/contract';
import { sql } from 'kysely';
import { Value } from 'typebox/value';
import { expect, test } from 'vitest';
import { putObject, repositoryOf } from '../test-repositories/probe.ts';
import {
  call,
  callApi,
  cloud,
  create,
  metadata,
  operationOf,
  passwords,
  pgBackRest,
  reach,
  remove,
} from './api-shapes-calls.ts';
import { CONTROL_OBJECT } from './probe.ts';
import { untilExpected } from './until.ts';

test('repositories are added, checked, described and removed', async () => {
  const path = join(cloud.home, 'offsite');
  const asked = { name: 'offsite', type: 'path', path };
  if (pgBackRest !== null) {
    const missing = await callApi('POST', '/repositories', asked);
    expect(missing).toMatchObject({ status: 400, body: { code: 'INVALID_REQUEST' } });
    expect(missing.body['message']).toContain(`mkdir ${path}`);
    await mkdir(path);
  }
  const made = await callApi('POST', '/repositories', asked);
  if (pgBackRest === null) {
    expect(made).toMatchObject({ status: 422, body: { code: 'UNAVAILABLE_HERE' } });
    expect(made.body['message']).toContain('apt-get install pgbackrest');
    expect((await callApi('GET', '/repositories')).body).toEqual({ value: [] });
    return;
  }
  const described = { name: 'offsite', type: 'path', location: path, retention_days: 14 };
  expect(made).toMatchObject({ status: 201, body: described });
  const at = `/repositories/${String(made.body['id'])}`;
  expect((await callApi('GET', '/repositories')).body).toMatchObject({ value: [described] });
  for (const [method, call] of [
    ['GET', at],
    ['POST', `${at}/check`],
  ] as const)
    expect(await callApi(method, call)).toMatchObject({
      status: 200,
      body: { ...described, problem: null },
    });
  const kit = await callApi('POST', `${at}/recoveryKit`);
  expect(kit).toMatchObject({
    status: 200,
    body: {
      howdah: 'recovery kit',
      installation_id: expect.any(String),
      repository: { name: 'offsite', type: 'path', path },
      passphrase: expect.stringMatching(/^.{40,}$/),
    },
  });
  const again = await callApi('POST', '/repositories', { name: 'another', type: 'path', path });
  expect(again).toMatchObject({ status: 409, body: { code: 'CONFLICT' } });
  const { id } = await create({ name: 'backed up', service_type: 'POSTGRES' });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  const backup = await call('POST', `/services/${id}/backups/run`, { full: true });
  expect(backup).toMatchObject({
    status: 202,
    body: { message: expect.stringContaining(operationOf(backup)) },
  });
  await untilExpected('the backup has succeeded', async () =>
    expect((await call('GET', `/operations/${operationOf(backup)}`)).body).toMatchObject({
      kind: 'runBackup',
      service_id: id,
      status: 'succeeded',
    }),
  );
  await setRetention(id);
  await createFromKit(kit.body, id);
  const { db } = metadata;
  const using = { repository: String(made.body['id']) };
  const service = await create({ name: 'lost', service_type: 'POSTGRES' });
  await reach(service.id, 'READY', 'QUEUED', 'CONFIGURING');
  const recovery = JSON.stringify(using);
  await sql`update services set recovery = ${recovery}::jsonb where id = ${service.id}`.execute(db);
  const used = await callApi('DELETE', at);
  expect(used).toMatchObject({ status: 409, body: { code: 'CONFLICT' } });
  expect(used.body['message']).toContain('services are being restored from it');
  await sql`update services set recovery = null where id = ${service.id}`.execute(db);
  await remove(service.id);
  expect((await callApi('DELETE', at)).status).toBe(204);
  // The repository is encrypted with its passphrase, and names its owner.
  const other = { ...asked, passphrase: 'another' };
  expect(await callApi('POST', '/repositories', other)).toMatchObject({ status: 400 });
  const back = await callApi('POST', '/repositories?dry_run=true', asked);
  expect(back).toMatchObject({ status: 200, body: { response_status: 201 } });
  expect(await callApi('POST', '/repositories', asked)).toMatchObject({
    status: 201,
    body: { id: made.body['id'], problem: null },
  });
  expect((await callApi('DELETE', at)).status).toBe(204);
});

/** A service with the data that the repository has of another one. */
async function createFromKit(kit: object, id: string): Promise<void> {
  if (pgBackRest === null || !Value.Check(RecoveryKitSchema, kit)) throw new Error('no kit');
  // As its control plane sends it each minute.
  const rows = await sql<{ row: object }>`
    select to_jsonb(services) as row from services where id = ${id}`.execute(metadata.db);
  const lines = rows.rows.map(({ row }) => JSON.stringify({ table: 'services', row }));
  await putObject(pgBackRest, repositoryOf(kit), CONTROL_OBJECT, gzipSync(lines.join('\n')));
  const asked = { kit, service: id, name: 'copy' };
  const listed = await call('POST', '/services/fromKit?dry_run=true', { kit });
  const made = await call('POST', '/services/fromKit', asked);
  if (process.getuid?.() !== 0) {
    for (const answer of [listed, made])
      expect(answer).toMatchObject({
        status: 422,
        body: { code: 'UNAVAILABLE_HERE', message: expect.stringContaining('as root') },
      });
    return;
  }
  const note = expect.stringContaining(`backed up (${id}) comes back as of`);
  expect(listed).toMatchObject({ status: 200, body: { note, operation: null } });
  expect(made).toMatchObject({ status: 202, body: { name: 'copy', status: 'QUEUED' } });
  const { service_id: copy, initial_password: password } = made.body;
  passwords.push(String(password));
  expect(copy).not.toBe(id);
  // A step that fails is tried again: the repository is written meanwhile.
  expect(await reach(String(copy), 'READY', 'QUEUED', 'CONFIGURING', 'UNSTABLE')).toMatchObject({
    service_type: 'POSTGRES',
  });
  await remove(String(copy));
}

test('the backup retention of a service is shown, and refused without a repository', async () => {
  const { id } = await create({ name: 'kept for long', service_type: 'POSTGRES' });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  const path = `/services/${id}/backup-retention`;
  const kept = {
    type: 'TIME',
    retention_days: 3,
    own_retention_days: null,
    local_days: 3,
    repositories: [],
  };
  expect((await call('GET', path)).body).toEqual(kept);
  // As a client of Tiger Cloud sends it.
  const asked = await call('PUT', path, { type: 'TIME', retention_days: 30 });
  const remedy = pgBackRest === null ? 'apt-get install pgbackrest' : 'howdah repo add';
  expect(asked).toMatchObject({ status: 422, body: { code: 'UNAVAILABLE_HERE' } });
  expect(asked.body['message']).toContain(remedy);
  const none = await call('PUT', path, { retention_days: null });
  expect(none).toMatchObject({ status: 200, body: kept });
  expect(none.headers.get('Operation-Id')).toBeNull();
  for (const wrong of [0, 181, 1.5, '30', -1])
    expect(await call('PUT', path, { retention_days: wrong })).toMatchObject({
      status: 400,
      body: { code: 'INVALID_REQUEST', message: expect.stringContaining('1 to 180') },
    });
  for (const wrong of [{}, { type: 'COUNT', retention_days: 30 }])
    expect((await call('PUT', path, wrong)).status).toBe(400);
  await remove(id);
});

/** A service keeps its backups for as long as it is set to. */
async function setRetention(id: string): Promise<void> {
  const path = `/services/${id}/backup-retention`;
  const set = await call('PUT', path, { type: 'TIME', retention_days: 30 });
  const own = {
    retention_days: 30,
    own_retention_days: 30,
    repositories: [{ repository: 'offsite', retention_days: 30 }],
  };
  expect(set).toMatchObject({ status: 200, body: own });
  expect((await call('GET', `/operations/${operationOf(set)}`)).body).toMatchObject({
    kind: 'setBackupRetention',
    status: 'succeeded',
  });
  expect((await call('PUT', path, { retention_days: 30 })).headers.get('Operation-Id')).toBeNull();
  expect((await call('GET', `/services/${id}/backupStatus`)).body).toMatchObject({
    window: { days: 3 },
    own_retention_days: 30,
    off_machine: [{ repository: 'offsite', retention_days: 30 }],
  });
  const regions = `/services/${id}/backup-regions`;
  const offsite = { region_code: 'offsite' };
  expect((await call('GET', regions)).body).toMatchObject({ value: [offsite] });
  expect(await call('POST', regions, offsite)).toMatchObject({ status: 200, body: offsite });
  // Each repository has the backups of all services.
  expect(await call('DELETE', `${regions}/offsite`)).toMatchObject({
    status: 422,
    body: { code: 'UNAVAILABLE_HERE', message: expect.stringContaining('howdah repo remove') },
  });
  await limitRetention(path);
  expect((await call('PUT', path, { retention_days: null })).body).toMatchObject({
    retention_days: 14,
    own_retention_days: null,
  });
}

/** The project of a service, which has 30 days, may have fewer. */
async function limitRetention(path: string): Promise<void> {
  const limit = (days: number | null) =>
    call('POST', '/setLimits', { backup_retention_days: days });
  expect(await limit(20)).toMatchObject({
    status: 200,
    body: { limits: { services: null, backup_retention_days: 20 } },
  });
  expect(await call('PUT', path, { retention_days: 21 })).toMatchObject({
    status: 422,
    body: {
      code: 'LIMIT_EXCEEDED',
      message: expect.stringContaining('--backup-retention-days 21'),
      details: { limit: 'backup_retention_days', allowed: 20, wanted: 21 },
    },
  });
  // A service keeps the time that it has, and may have a shorter one.
  expect((await call('PUT', path, { retention_days: 30 })).status).toBe(200);
  expect((await call('PUT', path, { retention_days: 20 })).status).toBe(200);
  expect((await limit(null)).status).toBe(200);
  expect((await call('PUT', path, { retention_days: 180 })).status).toBe(200);
}

test('a paused service is restored from its backups, one that runs is not', async () => {
  const { id } = await create({ name: 'damaged', service_type: 'POSTGRES' });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  expect(await call('POST', `/services/${id}/recover`, {})).toMatchObject({
    status: 400,
    body: { code: 'INVALID_STATE', message: expect.stringContaining('UNSTABLE or PAUSED') },
  });
  await call('POST', `/services/${id}/stop`);
  await reach(id, 'PAUSED', 'PAUSING');
  const recovered = await call('POST', `/services/${id}/recover`, { confirm: 'damaged' });
  expect(recovered).toMatchObject({ status: 202, body: { status: 'RESUMING' } });
  await reach(id, 'READY', 'RESUMING');
  await remove(id);
});

test('a directory that the metadata database does not know is adopted', async () => {
  const { id } = await create({ name: 'forgotten', service_type: 'POSTGRES' });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  await call('POST', `/services/${id}/stop`);
  await reach(id, 'PAUSED', 'PAUSING');
  const directory = join(cloud.home, 'data', 'services', id);
  const refused = await call('POST', '/services/adopt', { directory });
  expect(refused).toMatchObject({ status: 409, body: { code: 'CONFLICT' } });
  await metadata.db.deleteFrom('services').where('id', '=', id).execute();
  const adopted = await call('POST', '/services/adopt', { directory, name: 'found' });
  expect(adopted).toMatchObject({
    status: 202,
    body: { service_id: id, name: 'found', status: 'QUEUED', assumed: expect.any(Array) },
  });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  expect((await call('GET', `/operations/${operationOf(adopted)}`)).body).toMatchObject({
    kind: 'adopt',
    status: 'succeeded',
  });
  await remove(id);
});

test('an upgrade to the same version changes nothing, others say why not', async () => {
  const { id, answer } = await create({ name: 'stays as it is', service_type: 'POSTGRES' });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  const path = `/services/${id}/upgrade`;
  const same = await call('POST', path, { pg_version: answer.body['pg_version'] });
  expect([same.status, same.headers.get('Operation-Id')]).toEqual([202, null]);
  const refused = async (asked: object) => {
    const { status, body } = await call('POST', path, asked);
    return [status, body['code']];
  };
  expect(await refused({ pg_version: '99' })).toEqual([422, 'UNAVAILABLE_HERE']);
  expect(await refused({ pg_version: '99', try: true })).toEqual([422, 'UNAVAILABLE_HERE']);
  expect(await refused({ undo: true })).toEqual([400, 'INVALID_STATE']);
  for (const wrong of [{}, { undo: true, pg_version: '18' }, { try: true }, { pg_version: '9' }])
    expect(await refused(wrong)).toEqual([400, 'INVALID_REQUEST']);
  await remove(id);
});
