import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, readdir, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { LogEntry } from '@howdah/contract';
import { BadCursor, type LogQuery } from '../engine.ts';
import { pruneLogs, readLogs } from './logs.ts';

let top: string;
beforeAll(async () => {
  top = await mkdtemp(join(tmpdir(), 'hd-logs-'));
});
afterAll(async () => rm(top, { recursive: true }));

const START_MS = Date.UTC(2026, 10, 20, 12);
const ALL: LogQuery = {
  sinceMs: null,
  untilMs: null,
  cursor: null,
  search: [],
  severities: [],
  limit: 500,
};

type Written = { message: string; severity?: string; more?: Record<string, unknown> };
const momentOf = (index: number) => new Date(START_MS + index * 1000).toISOString();
/** A line as PostgreSQL 15 and later write them. */
const line = ({ message, severity = 'LOG', more = {} }: Written, index: number): string =>
  `${JSON.stringify({
    timestamp: momentOf(index).replace('T', ' ').replace('Z', ' UTC'),
    pid: 7,
    error_severity: severity,
    message,
    ...more,
  })}\n`;

/** Writes entries into files, one a second, `perFile` to a file. */
async function logDirectory(
  entries: readonly Written[],
  perFile = entries.length,
): Promise<string> {
  const directory = await mkdtemp(join(top, 'case-'));
  for (let first = 0; first < entries.length; first += perFile) {
    const name = momentOf(first).slice(0, 19).replaceAll(/:/g, '');
    const text = entries
      .slice(first, first + perFile)
      .map((entry, index) => line(entry, first + index))
      .join('');
    await writeFile(join(directory, `${name}.json`), text);
  }
  return directory;
}

/** Reads page after page. */
async function readAll(directory: string, query: Partial<LogQuery> = {}): Promise<LogEntry[][]> {
  const pages: LogEntry[][] = [];
  let cursor: string | null = null;
  do {
    const page = await readLogs(directory, { ...ALL, ...query, cursor });
    pages.push(page.entries);
    cursor = page.cursor;
  } while (cursor !== null);
  return pages;
}
const messages = (pages: readonly LogEntry[][]) => pages.flat().map(({ message }) => message);
const numbered = (count: number): Written[] =>
  Array.from({ length: count }, (_, index) => ({ message: `entry ${index}` }));

test('an entry: ISO time, severity, and detail, hint and statement after the message', async () => {
  const directory = await logDirectory([
    {
      message: 'broken',
      severity: 'ERROR',
      more: {
        detail: 'why',
        hint: 'fix',
        statement: 'select',
        context: 'x',
        query_id: 3,
        pid: 17,
        user: 'app',
        dbname: 'shop',
        application_name: 'psql',
        remote_host: '10.0.0.1',
        remote_port: 4711,
        session_id: '6740.11',
        line_num: 2,
        ps: 'SELECT',
        state_code: '42P01',
        backend_type: 'client backend',
      },
    },
  ]);
  expect(await readLogs(directory, ALL)).toEqual({
    entries: [
      {
        timestamp: '2026-11-20T12:00:00.000Z',
        severity: 'ERROR',
        message: 'broken\nDETAIL: why\nHINT: fix\nSTATEMENT: select',
        origin: {
          process_id: 17,
          user_name: 'app',
          database_name: 'shop',
          application_name: 'psql',
          client: '10.0.0.1',
          session_id: '6740.11',
          session_line: 2,
          command_tag: 'SELECT',
          error_code: '42P01',
          backend_type: 'client backend',
        },
      },
    ],
    cursor: null,
  });
});

test('newest first, page by page over files, each entry once, and an end', async () => {
  for (const [count, perFile, limit] of [
    [1234, 100, 500],
    [1000, 1000, 500],
    [1000, 250, 500],
    [7, 3, 1],
    [500, 500, 500],
  ] as const) {
    const directory = await logDirectory(numbered(count), perFile);
    const pages = await readAll(directory, { limit });
    expect(messages(pages)).toEqual(
      numbered(count)
        .map(({ message }) => message)
        .toReversed(),
    );
    for (const page of pages.slice(0, -1)) expect(page).toHaveLength(limit);
    expect(pages).toHaveLength(Math.ceil(count / limit));
  }
});

test('whatever the lengths of lines and borders of chunks, every entry comes back', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.integer({ min: 0, max: 9000 }), { minLength: 120, maxLength: 160 }),
      fc.constantFrom('x', 'é', '象', '🐘', '\n', '"\\'),
      fc.integer({ min: 1, max: 70 }),
      fc.integer({ min: 10, max: 200 }),
      async (lengths, unit, limit, perFile) => {
        const entries = lengths.map((length, index) => ({
          message: `${index} ${unit.repeat(length)} ${index}`,
        }));
        const directory = await logDirectory(entries, perFile);
        expect(messages(await readAll(directory, { limit })).toReversed()).toEqual(
          entries.map(({ message }) => message),
        );
        await rm(directory, { recursive: true });
      },
    ),
    { numRuns: 12 },
  );
});

const timesOf = (pages: readonly LogEntry[][]) => pages.flat().map(({ timestamp }) => timestamp);

test('a line longer than 64 KiB is cut and marked, at any character or escape', async () => {
  for (const unit of ['x', '🐘', '"', '\\', '\u0001']) {
    for (let shift = 0; shift < 12; shift++) {
      const long = 'y'.repeat(shift) + unit.repeat(200_000);
      const directory = await logDirectory([
        { message: 'before' },
        { message: long, severity: 'ERROR' },
        { message: 'after' },
      ]);
      const [after, cut, before] = (await readAll(directory, { limit: 1 })).flat();
      expect([after?.message, before?.message]).toEqual(['after', 'before']);
      expect(cut).toMatchObject({ severity: 'ERROR', timestamp: momentOf(1) });
      const [kept = '', mark] = cut?.message.split('\n') ?? [];
      expect(long.startsWith(kept)).toBe(true);
      expect(kept.length).toBeGreaterThan(10_000);
      expect(Buffer.byteLength(kept)).toBeLessThan(65_536);
      expect(mark).toMatch(/^\[cut after 64 KiB of at least \d+ bytes\]$/);
      await rm(directory, { recursive: true });
    }
  }
});

const endOf = (page: { cursor: string | null }): number =>
  page.cursor === null ? 0 : Number(Buffer.from(page.cursor, 'base64url').toString().split(':')[0]);

test('a call reads 16 MiB at most, and its cursor reaches every line once', async () => {
  const mb = 1024 * 1024;
  const directory = await logDirectory([
    { message: 'first' },
    { message: 'x'.repeat(40 * mb) },
    { message: 'y'.repeat(16 * mb) },
    { message: 'last' },
  ]);
  const pages: LogEntry[][] = [];
  let [cursor, end]: [string | null, number] = [null, 56 * mb + 1000];
  do {
    const page = await readLogs(directory, { ...ALL, cursor });
    expect(end - endOf(page)).toBeLessThanOrEqual(17 * mb);
    expect(page.cursor === null || endOf(page) < end).toBe(true);
    [cursor, end] = [page.cursor, endOf(page)];
    pages.push(page.entries);
  } while (cursor !== null);
  expect(timesOf(pages)).toEqual([3, 2, 1, 0].map(momentOf));
  expect(messages(pages).map((message) => message.slice(0, 3))).toEqual([
    'las',
    'yyy',
    'xxx',
    'fir',
  ]);
});

test('whatever the lengths of lines, pages that end inside a line lose none', async () => {
  // Around the sizes of a line, of a chunk, and of several.
  const lengths = [64, 128, 256, 384].flatMap((kib) =>
    [-300, -200, -170, -160, -150, -100, -1, 0, 1, 100].map((n) => kib * 1024 + n),
  );
  const entries = lengths.map((length) => ({ message: 'x'.repeat(length) }));
  const directory = await logDirectory(entries);
  for (const limit of [1, 7, 500])
    expect(timesOf(await readAll(directory, { limit }))).toEqual(
      entries.map((_, n) => momentOf(n)).toReversed(),
    );
});

test('a page shows 512 KiB at most', async () => {
  const directory = await logDirectory(
    Array.from({ length: 100 }, (_, index) => ({ message: `${index} ${'x'.repeat(60_000)}` })),
  );
  const pages = await readAll(directory);
  expect(messages(pages)).toHaveLength(100);
  for (const page of pages)
    expect(page.reduce((sum, { message }) => sum + message.length, 0)).toBeLessThan(0.6e6);
});

test('other work goes on between chunks of 128 KiB', async () => {
  const directory = await logDirectory([{ message: 'x'.repeat(15 * 1024 * 1024) }]);
  let turns = 0;
  let reading = true;
  const count = (): void => {
    turns += 1;
    if (reading) setImmediate(count);
  };
  setImmediate(count);
  await readLogs(directory, ALL);
  reading = false;
  expect(turns).toBeGreaterThanOrEqual((15 * 1024) / 128);
});

test('a call ends with its client', async () => {
  const directory = await logDirectory([{ message: 'x'.repeat(15 * 1024 * 1024) }]);
  const client = new AbortController();
  const reading = readLogs(directory, ALL, client.signal);
  client.abort(new Error('the client left'));
  await expect(reading).rejects.toThrow('the client left');
});

test('an empty line at the begin of a file', async () => {
  const directory = await logDirectory(numbered(2));
  const [file = ''] = await readdir(directory);
  await writeFile(join(directory, file), `\n${line({ message: 'after' }, 0)}`);
  expect(await readLogs(directory, ALL)).toMatchObject({
    entries: [{ message: 'after' }],
    cursor: null,
  });
});

test('links and FIFOs in place of a log are left out', async () => {
  const directory = await logDirectory(numbered(2));
  await writeFile(join(top, 'other.json'), line({ message: 'not of this server' }, 0));
  await symlink(join(top, 'other.json'), join(directory, '2026-11-21T000000.json'));
  await symlink('/nowhere', join(directory, '2026-11-21T000001.json'));
  execFileSync('mkfifo', [join(directory, '2026-11-21T000002.json')]);
  await mkdir(join(directory, '2026-11-21T000003.json'));
  expect(messages(await readAll(directory))).toEqual(['entry 1', 'entry 0']);
});

test('lines that are written after a page was read do not disturb the next one', async () => {
  const directory = await logDirectory(numbered(30), 10);
  const first = await readLogs(directory, { ...ALL, limit: 4 });
  await writeFile(join(directory, '2026-11-20T120020.json'), line({ message: 'new' }, 31), {
    flag: 'a',
  });
  await writeFile(join(directory, '2026-11-20T130000.json'), line({ message: 'newer' }, 3600));
  const second = await readLogs(directory, { ...ALL, limit: 4, cursor: first.cursor });
  expect(messages([first.entries, second.entries])).toEqual(
    [29, 28, 27, 26, 25, 24, 23, 22].map((number) => `entry ${number}`),
  );
});

test('a line that is being written is left out, and so is what is no entry', async () => {
  const directory = await logDirectory(numbered(2));
  const [file = ''] = await readdir(directory);
  await writeFile(join(directory, file), `not json\n\n5\nnull\n[]\n{"timestamp":"2026-11-20 12:0`, {
    flag: 'a',
  });
  await writeFile(join(directory, '2026-11-20T990000.log'), 'stderr of the collector\n');
  expect(
    messages([(await readLogs(directory, ALL)).entries.filter(({ message }) => message !== '')]),
  ).toEqual(['entry 1', 'entry 0']);
});

test('search: all terms, in any case, as they stand', async () => {
  const directory = await logDirectory([
    { message: 'Relation "Users" does not exist', severity: 'ERROR' },
    { message: 'relation "orders" exists' },
    { message: 'a.c' },
    { message: 'abc' },
    { message: 'ÄRGER', more: { statement: 'select Needle' } },
  ]);
  const found = async (...search: string[]) => messages(await readAll(directory, { search }));
  expect(await found('RELATION', 'exist')).toEqual([
    'relation "orders" exists',
    'Relation "Users" does not exist',
  ]);
  expect(await found('relation', 'users')).toEqual(['Relation "Users" does not exist']);
  expect(await found('a.c')).toEqual(['a.c']);
  expect(await found('ärger')).toHaveLength(1);
  expect(await found('needle')).toHaveLength(1);
  expect(await found('no such thing')).toEqual([]);
});

test('severities', async () => {
  const directory = await logDirectory(
    ['LOG', 'ERROR', 'FATAL', 'WARNING', 'ERROR'].map((severity, index) => ({
      message: String(index),
      severity,
    })),
  );
  expect(messages(await readAll(directory, { severities: ['ERROR'] }))).toEqual(['4', '1']);
  expect(messages(await readAll(directory, { severities: ['FATAL', 'WARNING'] }))).toEqual([
    '3',
    '2',
  ]);
  expect(messages(await readAll(directory, { severities: ['PANIC'] }))).toEqual([]);
});

test('since is inclusive, until is not, and both work over files and pages', async () => {
  const directory = await logDirectory(numbered(40), 7);
  for (const limit of [1, 3, 500]) {
    const read = async (since: number | null, until: number | null) =>
      messages(
        await readAll(directory, {
          limit,
          sinceMs: since === null ? null : START_MS + since * 1000,
          untilMs: until === null ? null : START_MS + until * 1000,
        }),
      ).map((message) => Number(message.slice(6)));
    expect(await read(36, null)).toEqual([39, 38, 37, 36]);
    expect(await read(null, 3)).toEqual([2, 1, 0]);
    expect(await read(13, 16)).toEqual([15, 14, 13]);
    expect(await read(16, 16)).toEqual([]);
    expect(await read(100, null)).toEqual([]);
  }
});

test('a filter that finds little goes on through all pages', async () => {
  const directory = await logDirectory(
    Array.from({ length: 3000 }, (_, index) => ({
      message: index % 700 === 0 ? `needle ${index}` : 'hay',
    })),
    450,
  );
  expect(messages(await readAll(directory, { search: ['needle'], limit: 2 }))).toEqual(
    [2800, 2100, 1400, 700, 0].map((n) => `needle ${n}`),
  );
});

const cursor = (text: string) => Buffer.from(text).toString('base64url');

test('a cursor that is none of ours is refused, and never names a path', async () => {
  const directory = await logDirectory(numbered(3));
  await writeFile(join(top, 'secret.json'), line({ message: 'secret' }, 0));
  for (const bad of [
    '',
    'x',
    '!!!',
    cursor('5'),
    cursor('x:2026.json'),
    cursor('-1:2026.json'),
    cursor('5:../secret.json'),
    cursor('5:/etc/passwd'),
    cursor('5:2026.json\0'),
  ])
    await expect(readLogs(directory, { ...ALL, cursor: bad }), bad).rejects.toThrow(BadCursor);
});

test('a cursor into a file that is gone or shorter goes on with what there is', async () => {
  const directory = await logDirectory(numbered(9), 3);
  const { cursor } = await readLogs(directory, { ...ALL, limit: 4 });
  const files = (await readdir(directory)).toSorted();
  await rm(join(directory, files[1] ?? ''));
  expect(messages([(await readLogs(directory, { ...ALL, cursor })).entries])).toEqual([
    'entry 2',
    'entry 1',
    'entry 0',
  ]);

  const other = await logDirectory(numbered(9));
  const page = await readLogs(other, { ...ALL, limit: 1 });
  await truncate(join(other, (await readdir(other))[0] ?? ''), 0);
  expect((await readLogs(other, { ...ALL, cursor: page.cursor })).entries).toEqual([]);
});

test('an empty directory has no entries', async () => {
  const directory = join(top, 'empty');
  await mkdir(directory);
  expect(await readLogs(directory, ALL)).toEqual({ entries: [], cursor: null });
});

test('the oldest files are taken away beyond 200 MB, never the newest', async () => {
  const directory = await mkdtemp(join(top, 'prune-'));
  const sparse = async (name: string, bytes: number) => {
    await writeFile(join(directory, name), '');
    await truncate(join(directory, name), bytes);
  };
  for (const [day, bytes] of [150e6, 90e6, 60e6, 40e6].entries())
    await sparse(`2026-01-0${day + 1}T000000.json`, bytes);
  await sparse('2026-01-01T000000.log', 1);
  await pruneLogs(directory);
  expect((await readdir(directory)).toSorted()).toEqual([
    '2026-01-01T000000.log',
    '2026-01-02T000000.json',
    '2026-01-03T000000.json',
    '2026-01-04T000000.json',
  ]);
  await sparse('2026-01-05T000000.json', 300e6);
  await pruneLogs(directory);
  expect(await readdir(directory)).toContain('2026-01-05T000000.json');
  expect((await readdir(directory)).filter((name) => name.endsWith('.json'))).toHaveLength(1);
});
