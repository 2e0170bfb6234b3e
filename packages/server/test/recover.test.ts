// @module-tag slow
/** An installation that is lost with its machine, and comes back from a repository. */
import { mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo, install, makeHome, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { findPgBackRest, recoveryPath } from './probe.ts';
import { during, until, untilExpected } from './until.ts';

const pgBackRest = await findPgBackRest();

let cloud: Installation;
/** On another disk, as far as the installation knows. */
let away: string;
beforeAll(async () => {
  away = await makeHome();
  cloud = await install();
});
afterAll(async () => {
  const problems = await cloud?.destroy();
  await rm(away, { recursive: true, force: true });
  expect(problems).toEqual([]);
});

/** Every acknowledged commit, with the time at which the client knew. */
type Ledger = { client: Client; acknowledged: { n: number; atMs: number }[]; stop: () => void };

async function openLedger(service: Service & { initial_password: string }): Promise<Ledger> {
  const client = await connectTo(cloud, service, service.initial_password);
  await client.query('create table ledger (n int primary key)');
  const acknowledged: Ledger['acknowledged'] = [];
  let goesOn = true;
  const write = async (): Promise<void> => {
    const n = acknowledged.length + 1;
    await client.query('insert into ledger values ($1)', [n]);
    acknowledged.push({ n, atMs: Date.now() });
  };
  // The loss of the machine ends it.
  during(() => goesOn, write).catch(() => undefined);
  return {
    client,
    acknowledged,
    stop: () => {
      goesOn = false;
    },
  };
}

/** A moment between two commits of a ledger. @returns n: the last one before it */
async function momentOf({ client }: Ledger): Promise<{ at: string; n: number }> {
  const { rows } = await client.query<{ at: string; n: number }>(
    `select to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at,
       max(n) as n from ledger`,
  );
  const [found] = rows;
  if (found === undefined) throw new Error('an aggregate has a row');
  return found;
}

/** A moment before the machine is lost for the first time. */
let moment: { service: Service & { initial_password: string }; at: string; n: number };

/** The moment up to which every commit of a service is in the repository. */
async function safeMs({ service_id: id }: Service): Promise<number> {
  const { body } = await cloud.request('GET', `/services/${id}/backupStatus`);
  const [state]: unknown[] = [Reflect.get(Object(body), 'off_machine')].flat();
  const latest: unknown = Reflect.get(Object(state), 'latest');
  return typeof latest === 'string' ? Date.parse(latest) : 0;
}

const untilSafe = (service: Service, toMs: number): Promise<void> =>
  untilExpected(`the repository has the commits of ${service.name}`, async () =>
    expect(await safeMs(service)).toBeGreaterThanOrEqual(toMs),
  );

/** When the repository got the data of the control plane. */
async function controlSavedMs(): Promise<number> {
  const { stdout } = await cloud.cli('repo', 'show', 'offsite', '-o', 'json');
  const saved: unknown = Reflect.get(Object(JSON.parse(stdout)), 'control_saved');
  return typeof saved === 'string' ? Date.parse(saved) : 0;
}

/** Loses everything but the repository and its kit. */
async function loseMachine(): Promise<void> {
  const kit = await cloud.cli('repo', 'kit', 'offsite');
  expect(kit.code).toBe(0);
  await writeFile(join(away, 'kit.json'), kit.stdout);
  await cloud.stop('SIGKILL');
  expect((await cloud.cli('down', '--databases')).code).toBe(0);
  for (const entry of await readdir(cloud.home))
    await rm(join(cloud.home, entry), { recursive: true, force: true });
  await mkdir(cloud.home, { recursive: true });
}

/** For how many days a deleted service can be restored, rounded. */
async function daysLeft(name: string): Promise<number> {
  const { body } = await cloud.request('GET', '/deletedServices');
  const found = [body].flat().find((one) => Reflect.get(Object(one), 'name') === name);
  const untilMs = Date.parse(String(Reflect.get(Object(found), 'restorable_until')));
  return Math.round((untilMs - Date.now()) / 86_400_000);
}

const idsOf = (services: readonly Service[]): string[] =>
  services.map(({ service_id: id }) => id).toSorted();

/** Restores a service that has nothing on this machine from the repository. */
async function recoverOne({ service_id: id, name }: Service): Promise<void> {
  await cloud.until(id, 'UNSTABLE');
  const plan = await cloud.cli('service', 'recover', name, '--dry-run');
  expect(plan.stdout).toContain('its newest backup in the repository offsite comes back');
  expect(await cloud.cli('service', 'recover', name)).toMatchObject({ code: 0 });
  expect((await cloud.get(id)).status).toBe('READY');
}

test('a lost machine comes back from a repository with all that was safe there', async () => {
  const add = ['repo', 'add', 'offsite', '--path', join(away, 'repository')];
  if (pgBackRest === null) {
    const refused = await cloud.cli(...add);
    expect(refused).toMatchObject({ code: 9 });
    expect(refused.stderr).toContain('apt-get install pgbackrest');
    return;
  }
  await mkdir(join(away, 'repository'));
  const busy = await cloud.create({ name: 'busy', service_type: 'POSTGRES' });
  const idle = await cloud.create({ name: 'idle', service_type: 'POSTGRES' });
  const gone = await cloud.create({ name: 'gone', service_type: 'POSTGRES' });
  const pair = await cloud.create({ name: 'pair', service_type: 'POSTGRES', replica_count: 1 });
  await cloud.request('POST', `/services/${pair.service_id}/switchover`);
  await cloud.until(pair.service_id, 'READY');
  const added = await cloud.cli(...add);
  expect(added).toMatchObject({ code: 0, stderr: '' });

  const first = await connectTo(cloud, pair, pair.initial_password);
  await first.query('create table kept as select 1 as one');
  await first.end();
  const ledger = await openLedger(busy);
  await until('20 writes are acknowledged', () => ledger.acknowledged.length >= 20);
  moment = { service: busy, ...(await momentOf(ledger)) };
  const begunMs = Date.now();
  for (const service of [busy, pair]) await untilSafe(service, begunMs);
  for (const service of [idle, gone]) await untilSafe(service, 1);
  expect(await cloud.cli('backup', 'set-retention', 'gone', '60')).toMatchObject({ code: 0 });
  expect(await cloud.cli('service', 'delete', 'gone', '--yes')).toMatchObject({ code: 0 });
  const deletedMs = Date.now();
  await untilExpected('the metadata database is saved', async () =>
    expect(await controlSavedMs()).toBeGreaterThanOrEqual(deletedMs),
  );
  const promisedMs = await safeMs(busy);

  await loseMachine();
  ledger.stop();

  // Interrupted after the metadata database was restored: nothing starts until it is repeated.
  const interrupt = () => writeFile(recoveryPath(cloud.home), '{"owner":"interrupted"}');
  await interrupt();
  expect((await cloud.cli('recover', join(away, 'kit.json'))).code).toBe(0);
  await interrupt();
  expect((await cloud.cli('up')).stderr).toContain('run howdah recover with its kit again');
  const unknown = await cloud.cli('recover', join(away, 'kit.json'), '--only', 'busy,nobody');
  expect(unknown.stderr).toContain('--only: found nobody');
  const recovered = await cloud.cli('recover', join(away, 'kit.json'), '--only', 'busy,pair');
  expect(recovered.stderr).toBe('');
  expect(recovered.code).toBe(0);
  expect(recovered.stdout).toContain(`service ${busy.service_id} (busy) will be restored`);
  expect(recovered.stdout).toContain(`service ${idle.service_id} (idle) is left`);
  await cloud.up();
  const back = await cloud.until(busy.service_id, 'READY');
  await recoverOne(idle);
  // This one was deleted before, its data was lost with the machine, and its retention is its own.
  expect(await daysLeft('gone')).toBe(60);
  expect(await cloud.cli('service', 'restore', 'gone')).toMatchObject({ code: 0 });
  expect((await cloud.get(gone.service_id)).endpoint).toEqual(gone.endpoint);
  await cloud.until(pair.service_id, 'READY');
  const again = await connectTo(cloud, pair, pair.initial_password);
  expect((await again.query('table kept')).rows).toEqual([{ one: 1 }]);
  await again.end();
  expect(back.endpoint).toEqual(busy.endpoint);
  expect(idsOf([back, await cloud.get(idle.service_id)])).toEqual(idsOf([busy, idle]));

  const client = await connectTo(cloud, back, busy.initial_password);
  const { rows } = await client.query<{ n: number }>('select n from ledger order by n');
  const found = new Set(rows.map(({ n }) => n));
  const promised = ledger.acknowledged.filter(({ atMs }) => atMs <= promisedMs);
  expect(promised.length).toBeGreaterThan(10);
  expect(promised.filter(({ n }) => !found.has(n))).toEqual([]);
  // A prefix: nothing in the middle is missing.
  expect(rows.map(({ n }) => n)).toEqual(rows.map((_, index) => index + 1));
  await client.query('insert into ledger values (1000000)');
  await client.end();
});

test.runIf(pgBackRest !== null)(
  'a service comes back as it was at a moment, with the last commit before it and not the next',
  async () => {
    const { service, at, n } = moment;
    const { service_id: id, initial_password: password } = service;
    await loseMachine();
    const kit = join(away, 'kit.json');
    expect(await cloud.cli('recover', kit, '--only', 'busy', '--at', at)).toMatchObject({
      code: 0,
    });
    await cloud.up();
    const client = await connectTo(cloud, await cloud.until(id, 'READY'), password);
    const { rows } = await client.query('select max(n) as last, count(*)::int as n from ledger');
    expect(rows).toEqual([{ last: n, n }]);
    await client.end();
    for (const name of ['idle', 'pair', 'gone'])
      expect(await cloud.cli('service', 'purge', name, '--confirm', name)).toMatchObject({
        code: 0,
      });
  },
);
