/** Imports of live databases and of dumps, and exports, by the command line that users have. */
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  begin,
  canRun,
  cloud,
  connectBy,
  passwordIn,
  setUp,
  source,
  state,
  tearDown,
  TIMESCALE,
  title,
  untilPrinted,
  type Running,
} from './import-cloud.ts';
import { BOOKS, ELSEWHERE, OBSTACLES, SHOP, startWriter } from './import-source.ts';
import { untilExpected } from './until.ts';

beforeAll(setUp);
afterAll(tearDown);

/** Everything that is compared between the source and a service, read in the same way from both. */
const QUESTIONS = {
  customers: 'select c.*, c.ctid is null as x from only customers c order by id',
  items: 'select * from "Sales; drop"."Order\nItems" order by id',
  parted: 'select tableoid::regclass::text as part, * from parted order by k',
  view: 'select * from "a view" order by id',
  sums: 'select * from sums',
  audits: 'select count(*)::int from audits',
  sequence: 'select last_value, is_called from spare_numbers',
  comments: "select obj_description('customers'::regclass)",
  triggers: 'select tgname, tgenabled from pg_trigger where not tgisinternal order by 1',
  constraints: `select conname, contype, pg_get_constraintdef(oid) as def from pg_constraint
    where connamespace in (select oid from pg_namespace where nspname in ('public', 'Sales; drop'))
      and contype <> 'n' order by 1, 3`,
  indexes: `select indexdef from pg_indexes
    where schemaname in ('public', 'Sales; drop') order by 1`,
  grants: `select grantee, privilege_type from information_schema.role_table_grants
    where table_name = 'customers' and grantee = 'Reader "1"'`,
  large: 'select oid::text, md5(lo_get(oid)) from pg_largeobject_metadata order by oid',
} as const;

async function answers(client: Client): Promise<Record<string, unknown>> {
  const found: Record<string, unknown> = {};
  for (const [name, text] of Object.entries(QUESTIONS))
    found[name] = (await client.query(text)).rows;
  return found;
}

/** The sessions that wait for a lock. */
const WAITING =
  "select application_name as name from pg_stat_activity where wait_event_type = 'Lock'";

/** Cuts over from the source `back` to the service, after a first attempt that is killed. */
async function expectCutover(running: Running, service: Client, back: Client): Promise<void> {
  // A cutover that is killed before its commit has changed nothing. A lock in the service makes
  // it wait for its foreign keys.
  await service.query('begin; lock table ledger in share mode');
  const killed = begin('import', 'cutover', 'books');
  await untilPrinted(killed, '✓ compare with the source');
  killed.kill();
  await killed.ended;
  expect(await running.ended).toBe(0);
  await service.query('rollback');
  await back.query("insert into log values ('after the kill', null)");

  // Readers of the source continue; a writer waits, and is named.
  await service.query('begin; lock table ledger in share mode');
  const forgotten = await source.connect();
  await forgotten.query("set application_name = 'forgotten'");
  await forgotten.query("begin; insert into log values ('last', null)");
  const cutover = begin('import', 'cutover', 'books');
  // The cutover's lock waits for the transaction, whose rows come after the first catching up.
  await untilExpected('only the cutover waits for a lock', async () =>
    expect((await back.query(WAITING)).rows).toEqual([
      { name: expect.stringMatching(/^howdah import .* cutover$/) },
    ]),
  );
  await forgotten.query('commit');
  await untilPrinted(cutover, '✓ compare with the source');
  const tables = ['accounts', 'ledger', 'log', 'moved'];
  const read = async (client: Client): Promise<unknown[]> => {
    const found: unknown[] = [];
    for (const table of tables)
      found.push((await client.query(`select t::text from ${table} t order by 1`)).rows);
    return found;
  };
  const last = await read(back);
  const late = forgotten.query("insert into log values ('too late', null)");
  await untilExpected('only the late writer waits for a lock', async () =>
    expect((await back.query(WAITING)).rows).toEqual([{ name: 'forgotten' }]),
  );
  await service.query('rollback');
  expect([await cutover.ended, cutover.output()]).toEqual([
    0,
    expect.stringMatching(/accepted no writes for [0-9.]+ m?s, in which all rows/),
  ]);
  expect(cutover.output()).toContain('still write to the source');
  expect(cutover.output()).toContain('forgotten');
  await late;
  await forgotten.end();
  expect(await read(service)).toEqual(last);
}

describe('imports', () => {
  test.runIf(canRun)(
    title('a live database is copied with all that it has, wherever the import is killed'),
    async () => {
      const app = await source.connect();
      await (
        await source.asRoot().then(async (root) => {
          await root.query('alter role app createrole');
          return root;
        })
      ).end();
      await app.query(SHOP);
      await app.query("select lo_from_bytea(0, decode(repeat('00ff', 700000), 'hex'))");
      const before = await answers(app);

      const dry = await cloud.cli('import', source.url, '--dry-run');
      expect(dry).toMatchObject({ code: 0, stdout: '' });
      expect(dry.stderr).toContain('Nothing was done.');

      const steps = [
        'dump the schema',
        'restore the schema',
        'copy rows',
        'copy large objects',
        'create indexes',
        'finish the schema',
      ];
      let output = '';
      for (const [index, name] of steps.entries()) {
        const running =
          index === 0
            ? begin('import', source.url, '--name', 'shop')
            : begin('import', 'resume', 'shop');
        await untilPrinted(running, `✓ ${name}`);
        running.kill();
        await running.ended;
        output += running.output();
        // The state has passwords: it is for its owner only.
        const [id = ''] = await readdir(join(state, 'howdah', 'imports'));
        if (id !== '') {
          const file = join(state, 'howdah', 'imports', id, 'state.json');
          if (existsSync(file)) expect((await stat(file)).mode & 0o077).toBe(0);
        }
      }
      const last = await cloud.cli('import', 'resume', 'shop');
      expect(last).toMatchObject({ code: 0, stdout: '' });
      expect(last.stderr).toContain('rows and checksums of every table are equal');
      expect(await readdir(join(state, 'howdah', 'imports'))).toEqual([]);
      // Neither the password nor a terminal's escape is printed.
      expect(output + last.stderr).not.toMatch(/p%40ss|p@ss/);

      const service = await connectBy('shop', passwordIn(output));
      expect(await answers(service)).toEqual(before);
      await service.query(`insert into customers ("na""me\nwith a line") values ('new')`);
      const { rows } = await service.query(
        `select max(id)::int as id, (select count(*)::int from audits) as audits
         from only customers`,
      );
      expect(rows).toEqual([{ id: 1001, audits: 1001 }]);
      await service.end();
      await app.end();

      // An import never touches what somebody else has made.
      cloud.env['PGPASSWORD'] = passwordIn(output);
      const again = await cloud.cli('import', source.url, '--into', 'shop');
      delete cloud.env['PGPASSWORD'];
      expect([again.code, again.stderr]).toEqual([5, expect.stringContaining('is not empty')]);
    },
  );

  test.runIf(canRun)(
    title('a followed import loses and doubles nothing, and ends with a measured downtime'),
    async () => {
      const app = await source.connect();
      await app.query('drop owned by app cascade');
      await app.query(BOOKS);
      const writer = await startWriter(source);
      let running = begin('import', source.url, '--name', 'books', '--follow');
      await untilPrinted(running, 'follows it');
      const password = passwordIn(running.output());
      const service = await connectBy('books', password);
      const seen = async (): Promise<number> =>
        Number((await service.query('select count(*) from ledger')).rows[0]?.count);
      for (let kill = 0; kill < 2; kill++) {
        const at = Math.max(await seen(), writer.written());
        await untilExpected('the import has copied a later row', async () =>
          expect(await seen()).toBeGreaterThan(at),
        );
        running.kill();
        await running.ended;
        running = begin('import', 'resume', 'books');
        await untilPrinted(running, 'follows it');
      }

      // The source goes away, and comes back.
      await writer.stop();
      await source.stop();
      expect(await running.ended).toBe(1);
      expect(running.output()).toContain('howdah import resume books');
      await source.start();
      const back = await source.connect();
      await back.query("truncate log; insert into log values ('last', null)");
      const status = await cloud.cli('import', 'status', 'books', '-o', 'json');
      expect(JSON.parse(status.stdout)).toMatchObject({ stage: 'follow', running: false });
      running = begin('import', 'resume', 'books');
      await untilPrinted(running, 'follows it');

      await untilExpected('the import has copied all rows', async () =>
        expect(await seen()).toBe(writer.written()),
      );
      await expectCutover(running, service, back);
      expect(await seen()).toBe(writer.written());
      // Foreign keys, sequences and identities work; nothing of the import is left on either side.
      await expect(
        service.query('insert into ledger (payer, amount) values (99, 1)'),
      ).rejects.toThrow('foreign key');
      await service.query('insert into ledger (payer, amount) values (1, 1)');
      const left = `select (select count(*)::int from pg_replication_slots) as slots,
        (select count(*)::int from pg_publication) as publications,
        to_regnamespace('howdah_import') is null as gone`;
      expect((await back.query(left)).rows).toEqual([{ slots: 0, publications: 0, gone: true }]);
      expect((await service.query(left)).rows).toEqual([{ slots: 0, publications: 0, gone: true }]);
      await Promise.all([app, service, back].map((client) => client.end().catch(() => undefined)));
    },
  );

  test.runIf(canRun)(title('what is in the way is named before anything is done'), async () => {
    const app = await source.connect();
    await app.query('create table "no key\n\u001b[2J" (i int)');
    const followed = await cloud.cli('import', source.url, '--name', 'refused', '--follow');
    expect(followed.code).toBe(2);
    expect(followed.stderr).toContain('has no replica identity');
    expect(followed.stderr).toContain('nothing was done');
    expect(followed.stderr).not.toContain('\u001b');
    const wrong = await cloud.cli(
      'import',
      source.url.replace('/shop', '/none'),
      '--name',
      'refused',
    );
    expect(wrong).toMatchObject({ code: 1, stdout: '' });
    expect(wrong.stderr).toContain('database "none" does not exist');
    const list = await cloud.cli('service', 'list', '-o', 'json');
    expect(list.stdout).not.toContain('refused');
    await app.query('drop table "no key\n\u001b[2J"');
    const root = await source.asRoot();
    await root.query(OBSTACLES);
    const dry = await cloud.cli('import', source.url, '--dry-run');
    expect(dry.code).toBe(2);
    for (const text of ['upper_of in the language internal', 'is LEAKPROOF', 'secrets', 'numbers'])
      expect(dry.stderr).toContain(text);
    expect(dry.stderr).not.toContain('join_texts');
    await root.query('drop owned by root_of_source, app cascade').catch(() => undefined);
    await root.query('drop function upper_of, at_most; drop table secrets; drop sequence numbers');
    await root.end();
    await app.end();
  });

  test.runIf(canRun)(
    title('a dump of another cloud is imported by rule, with a list of what is left out'),
    async () => {
      const directory = await mkdtemp(join(tmpdir(), 'hd-dump-'));
      const path = join(directory, 'elsewhere.sql');
      await writeFile(path, ELSEWHERE);
      const done = await cloud.cli('import', path, '--name', 'elsewhere');
      expect(done.code, done.stderr).toBe(0);
      for (const text of [
        'DROP DATABASE',
        'CREATE ROLE app',
        'CREATE SCHEMA public',
        'PUBLICATION',
      ])
        expect(done.stderr).toContain(text);
      expect(done.stderr).toContain("alter role app login password '…'");
      expect(done.stderr).not.toMatch(/md5[ab]/);
      const client = await connectBy('elsewhere', passwordIn(done.stdout));
      const { rows } = await client.query(`select (select sum(a)::int from t) as sum,
        has_table_privilege('app', 't', 'select') as granted,
        (select rolcanlogin from pg_roles where rolname = 'app') as login,
        (select polname from pg_policy) as policy,
        (select convert_from(lo_get(16500), 'UTF8')) as large`);
      expect(rows).toEqual([
        { sum: 3, granted: true, login: false, policy: 'own; rows', large: 'ab' },
      ]);
      await client.end();
      await cloud.cli('service', 'delete', 'elsewhere');
      await rm(directory, { recursive: true });
    },
  );

  test.runIf(canRun)(
    title('dumps are restored in one transaction, and run no commands'),
    async () => {
      const { spawnSync } = await import('node:child_process');
      const directory = await mkdtemp(join(tmpdir(), 'hd-dump-'));
      const dump = (format: string, file: string): string => {
        const path = join(directory, file);
        const url = new URL(source.url);
        const { status, stderr } = spawnSync(
          join(source.bin, 'pg_dump'),
          [
            '-O',
            '-x',
            `-F${format}`,
            '-f',
            path,
            '-h',
            '127.0.0.1',
            '-p',
            url.port,
            '-U',
            'app',
            'shop',
          ],
          { env: { PGPASSWORD: source.password }, encoding: 'utf8' },
        );
        expect([status, stderr]).toEqual([0, '']);
        return path;
      };
      const app = await source.connect();
      await app.query('drop owned by app cascade');
      await app.query(BOOKS);
      const text = 'select id, md5(memo) from accounts order by id';
      const expected = (await app.query(text)).rows;
      for (const [format, file] of [
        ['c', 'custom'],
        ['p', 'sql'],
      ] as const) {
        const name = `from ${file}`;
        const done = await cloud.cli('import', dump(format, file), '--name', name);
        expect(done.code, done.stderr).toBe(0);
        const client = await connectBy(name, passwordIn(done.stdout));
        expect((await client.query(text)).rows).toEqual(expected);
        await client.end();
        await cloud.cli('service', 'delete', name);
      }
      for (const path of [dump('d', 'directory'), dump('t', 'tar')])
        expect(await cloud.cli('import', path, '--dry-run')).toMatchObject({ code: 0 });
      // A script is not from somebody who may run programs here.
      const script = join(directory, 'script.sql');
      const mark = join(directory, 'mark');
      await writeFile(script, `create table t (i int);\n\\! touch ${mark}\n`);
      for (const dry of [['--dry-run'], []])
        expect(await cloud.cli('import', script, '--name', 'scripted', ...dry)).toMatchObject({
          code: 2,
          stderr: expect.stringContaining('line 2: the command \\! of psql'),
        });
      expect(existsSync(mark)).toBe(false);
      // An error that only PostgreSQL finds leaves nothing either.
      await writeFile(script, 'create table t (i int);\ncreate table t (i int);\n');
      const failed = await cloud.cli('import', script, '--name', 'scripted');
      expect(failed.code).toBe(1);
      expect(failed.stderr).toContain('already exists');
      expect(failed.stderr).toContain('Nothing is left');
      const list = await cloud.cli('service', 'list', '-o', 'json');
      expect(list.stdout).not.toContain('scripted');
      await app.end();
      await rm(directory, { recursive: true });
    },
  );
});

test.runIf(TIMESCALE !== null)(
  'hypertables are created as they are in the source' +
    (TIMESCALE === null ? ' (skipped: this machine has no TimescaleDB)' : ''),
  async () => {
    const created = await cloud.cli(
      ...'service create --name series --addons time-series -o json'.split(' '),
    );
    const password = String(Reflect.get(Object(JSON.parse(created.stdout)), 'initial_password'));
    const client = await connectBy('series', password);
    await client.query(`
      create table devices (id int primary key);
      insert into devices select generate_series(1, 5);
      create table "Metric s" (at timestamptz not null, device int references devices, v float8,
        primary key (at, device));
      select create_hypertable('"Metric s"', 'at', chunk_time_interval => interval '12 hours');
      select add_dimension('"Metric s"', 'device', number_partitions => 2);
      create index on "Metric s" (device, at desc);
      insert into "Metric s" select '2026-01-01'::timestamptz + i * interval '1 hour', 1 + i % 5, i
        from generate_series(1, 200) i`);
    const url = `postgres://tsdbadmin:${password}@127.0.0.1:${client.port}/tsdb?sslmode=require`;
    const done = await cloud.cli('import', url, '--name', 'series copy');
    expect(done.code, done.stderr).toBe(0);
    const copy = await connectBy('series copy', passwordIn(done.stdout));
    for (const text of [
      'select * from "Metric s" order by at',
      `select column_name, dimension_type, time_interval, num_partitions
       from timescaledb_information.dimensions order by dimension_number`,
      'select count(*) from timescaledb_information.chunks',
      "select indexdef from pg_indexes where schemaname = 'public' order by 1",
      `select conname, pg_get_constraintdef(oid) as def from pg_constraint
       where conrelid = '"Metric s"'::regclass and contype <> 'n' order by 1`,
    ])
      expect((await copy.query(text)).rows).toEqual((await client.query(text)).rows);
    await Promise.all([client.end(), copy.end()]);
    const followed = await cloud.cli('import', url, '--name', 'no', '--follow');
    expect(followed.stderr).toContain('is a hypertable');
  },
);

test('an export is restored into a new service, or names the package that it needs', async () => {
  const created = await cloud.cli('service', 'create', '--name', 'exported', '-o', 'json');
  const password = String(Reflect.get(Object(JSON.parse(created.stdout)), 'initial_password'));
  const client = await connectBy('exported', password);
  await client.query('create table kept as select i, md5(i::text) from generate_series(1, 1000) i');
  const file = join(state, 'exported.dump');
  const run = async (...args: string[]) => {
    cloud.env['PGPASSWORD'] = password;
    const outcome = await cloud.cli(...args);
    delete cloud.env['PGPASSWORD'];
    return outcome;
  };
  const exported = await run('export', 'exported', '--file', file);
  if (exported.code === 9) {
    expect(exported.stderr).toMatch(/apt-get install postgresql-client-\d+/);
    expect(existsSync(file)).toBe(false);
  } else {
    expect(exported).toMatchObject({ code: 0, stdout: '' });
    expect((await stat(file)).mode & 0o077).toBe(0);
    expect((await readFile(file)).toString('latin1', 0, 5)).toBe('PGDMP');
    const imported = await cloud.cli('import', file, '--name', 'imported');
    expect(imported.code, imported.stderr).toBe(0);
    const other = await connectBy('imported', passwordIn(imported.stdout));
    const text = 'select count(*), md5(string_agg(k::text, $1 order by i)) from kept k';
    expect((await other.query(text, [','])).rows).toEqual((await client.query(text, [','])).rows);
    await other.end();
  }
  await client.end();
});
