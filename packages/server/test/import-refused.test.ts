/** Imports that are given up, and imports that the checks refuse. */
import { readdir, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
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
  title,
  untilPrinted,
} from './import-cloud.ts';

beforeAll(setUp);
afterAll(tearDown);

const LEFT = `select (select count(*)::int from pg_replication_slots) as slots,
  (select count(*)::int from pg_publication) as publications`;
const NOTHING = [{ slots: 0, publications: 0 }];

const imports = (): Promise<string[]> => readdir(join(state, 'howdah', 'imports'));

test.runIf(canRun)(
  title('a cancelled import leaves nothing in the source, also if its service is gone'),
  async () => {
    const app = await source.connect();
    await app.query('create table kept (i int primary key); insert into kept values (1)');
    const running = begin('import', source.url, '--name', 'given up', '--follow');
    await untilPrinted(running, 'follows it');
    expect((await app.query(LEFT)).rows).toEqual([{ slots: 1, publications: 1 }]);
    const cancelled = await cloud.cli('import', 'cancel', 'given up');
    expect(cancelled.code, cancelled.stderr).toBe(0);
    expect(cancelled.stderr).toContain("howdah service delete 'given up'");
    expect(await running.ended).toBe(0);
    expect((await app.query(LEFT)).rows).toEqual(NOTHING);
    expect(await imports()).toEqual([]);
    const service = await connectBy('given up', passwordIn(running.output()));
    expect((await service.query('select i from kept')).rows).toEqual([{ i: 1 }]);
    await service.end();
    for (const verb of ['resume', 'cancel'])
      expect(await cloud.cli('import', verb, 'given up')).toMatchObject({
        code: 3,
        stderr: expect.stringContaining('no import into given up is under way'),
      });

    const orphan = begin('import', source.url, '--name', 'deleted', '--follow');
    await untilPrinted(orphan, 'follows it');
    orphan.kill();
    await orphan.ended;
    expect(await cloud.cli('service', 'delete', 'deleted')).toMatchObject({ code: 0 });
    expect(await cloud.cli('import', 'cancel', 'deleted')).toMatchObject({ code: 0 });
    expect((await app.query(LEFT)).rows).toEqual(NOTHING);
    expect(await imports()).toEqual([]);
    await app.end();
  },
);

test.runIf(canRun)(
  title('a source larger than the quota is refused before anything is copied'),
  async () => {
    const app = await source.connect();
    const { rows } = await app.query<{ oid: string }>(
      'select oid::text from pg_database where datname = current_database()',
    );
    // PostgreSQL adds up the sizes of the files, and this one takes no room.
    const file = join(source.data, 'base', rows[0]?.oid ?? '', 'sparse');
    await writeFile(file, '');
    await truncate(file, 11e9);
    const refused = await cloud.cli('import', source.url, '--name', 'small');
    await rm(file);
    expect(refused.code, refused.stderr).toBe(6);
    expect(refused.stderr).toContain('the storage quota of the service is 10 GB');
    expect(refused.stderr).toContain('--storage-gb 15');
    expect(refused.stderr).toContain('Nothing is left');
    const list = await cloud.cli('service', 'list', '-o', 'json');
    expect(list.stdout).not.toContain('small');
    const done = await cloud.cli('import', source.url, '--name', 'small');
    expect(done.code, done.stderr).toBe(0);
    await app.end();
  },
);
