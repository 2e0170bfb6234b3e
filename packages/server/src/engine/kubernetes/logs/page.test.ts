import { expect, test } from 'vitest';
import { createMemoryLogs } from '../../conformance/memory-records.ts';
import type { LogQuery } from '../../engine.ts';
import { KubeError } from '../api/errors.ts';
import { answerLog, logLine, type FakeLogs, type FakeOutput } from './fake-log.testing.ts';
import { linesIn, type LogLine } from './lines.ts';
import { parseCursor, readLog, pack } from './page.ts';

const ALL: LogQuery = {
  sinceMs: null,
  untilMs: null,
  cursor: null,
  search: [],
  severities: [],
  limit: 2,
};
const SIGNAL = new AbortController().signal;
const BEGIN = Date.parse('2026-11-26T10:00:00Z');
const POD = { namespace: 'howdah-p', name: 's-a-1', tag: 'aaaaaaaaaaaa' };
const PATH = '/api/v1/namespaces/howdah-p/pods/s-a-1';

/** A server with a pod, whose log a test changes between pages. */
function newServer() {
  const logs: FakeLogs = new Map();
  const kept = createMemoryLogs();
  const asked: string[] = [];
  let pod: typeof POD | null = POD;
  const kube = {
    text: async (path: string): Promise<string> => {
      asked.push(path);
      const { pathname, searchParams } = new URL(path, 'https://fake');
      const answer = answerLog(logs, pathname.replace(/\/log$/, ''), searchParams);
      if (answer === 'silent') throw new KubeError('no answer', null, null);
      if (answer === null) throw new KubeError('not found', 400, 'BadRequest');
      return answer;
    },
  };
  const read = (query: Partial<LogQuery> = {}) =>
    readLog({ kube, kept: kept.store }, { id: 'a', server: 0, pod }, { ...ALL, ...query }, SIGNAL);
  const keep = async (output: FakeOutput, tag = POD.tag): Promise<void> => {
    const part = await pack(linesOf(output));
    if (part !== null) await kept.store.add('a', 0, { ...part, pod: tag });
  };
  const all = async (query: Partial<LogQuery> = {}, between = async () => undefined as void) => {
    const messages: string[] = [];
    let cursor = query.cursor ?? null;
    for (let pages = 0; pages < 200; pages += 1) {
      const page = await read({ ...query, cursor });
      messages.push(...page.entries.map(({ message }) => message));
      ({ cursor } = page);
      if (cursor === null) return messages;
      await between();
    }
    throw new Error('the pages do not end');
  };
  return {
    logs,
    kept,
    asked,
    read,
    all,
    keep,
    put: (output: FakeOutput, previous?: FakeOutput) =>
      void logs.set(PATH, { output, ...(previous === undefined ? {} : { previous }) }),
    replacePod: (next: typeof POD | null) => {
      pod = next;
    },
  };
}

function linesOf(output: FakeOutput): LogLine[] {
  const all = { timestamps: 'true', tailLines: '9999999', limitBytes: '999999999' };
  const text = answerLog(new Map([[PATH, { output }]]), PATH, new URLSearchParams(all));
  return [...linesIn(text ?? '')];
}

const numbered = (first: number, last: number): FakeOutput =>
  Array.from({ length: last - first + 1 }, (_, n) =>
    // Two in each millisecond.
    logLine(BEGIN + Math.floor((first + n) / 2), `line ${first + n}`),
  );
const named = (first: number, last: number): string[] =>
  Array.from({ length: last - first + 1 }, (_, n) => `line ${last - n}`);

test('a log is read newest first, page by page, each entry once', async () => {
  const server = newServer();
  server.put([
    ...numbered(0, 4),
    [BEGIN + 9, '{"logger":"instance-manager","msg":"no line of PostgreSQL"}'],
    [BEGIN + 9, 'no JSON'],
    [BEGIN + 9, ''],
    ...numbered(20, 24),
  ]);
  expect(await server.all()).toEqual([...named(20, 24), ...named(0, 4)]);
});

test('a page has what is searched for, of the pod and of what is kept', async () => {
  const server = newServer();
  await server.keep([logLine(BEGIN, 'First', 'ERROR'), logLine(BEGIN + 500, 'fifth')]);
  server.put([logLine(BEGIN + 1000, 'FIFTH', 'ERROR'), logLine(BEGIN + 2000, 'second')]);
  expect(await server.all({ search: ['f', 'TH'] })).toEqual(['FIFTH', 'fifth']);
  expect(await server.all({ severities: ['ERROR'] })).toEqual(['FIFTH', 'First']);
  const during = { sinceMs: BEGIN + 500, untilMs: BEGIN + 1001 };
  expect(await server.all(during)).toEqual(['FIFTH', 'fifth']);
});

test('another text is no cursor', async () => {
  for (const cursor of ['1', '1764151200000.0', `${'9'.repeat(19)}.0.AAAAAAAAAAAA`])
    expect(() => parseCursor(cursor)).toThrow('no cursor');
});

test('the log goes on with that of the container before', async () => {
  const server = newServer();
  const [before, now] = [[logLine(BEGIN, 'out of memory')], [logLine(BEGIN + 1, 'again')]];
  server.put(now, before);
  expect(await server.all()).toEqual(['again', 'out of memory']);
  server.put(now);
  expect(await server.all()).toEqual(['again']);
  // The container waits for its next start: Kubernetes has one log only.
  server.put(now, now);
  expect(await server.all()).toEqual(['again']);
});

test('a log whose newest part cannot be read is no whole one', async () => {
  const server = newServer();
  await server.keep(numbered(0, 1));
  server.logs.set(PATH, 'silent');
  await expect(server.read()).rejects.toThrow('does not answer');
});

test('no line is missing or doubled where the pod has lines that are kept too', async () => {
  const server = newServer();
  await server.keep(numbered(0, 9));
  await server.keep(numbered(10, 29));
  // Kubernetes has rotated the older ones away.
  server.put(numbered(16, 39));
  for (const limit of [1, 2, 3, 7, 1000])
    expect(await server.all({ limit }), `${limit}`).toEqual(named(0, 39));
  // So it is with the container before.
  server.put(numbered(30, 39), numbered(16, 29));
  for (const limit of [1, 2, 3, 7, 1000])
    expect(await server.all({ limit }), `${limit}`).toEqual(named(0, 39));
});

test('a cursor stays valid when its lines are kept and its pod is gone', async () => {
  const server = newServer();
  server.put(numbered(0, 39));
  let page = 0;
  const messages = await server.all({ limit: 3 }, async () => {
    page += 1;
    if (page === 2) await server.keep(numbered(0, 33));
    if (page === 4) server.put(numbered(20, 45));
    if (page === 6) {
      await server.keep(numbered(34, 45));
      server.logs.delete(PATH);
      server.replacePod(null);
    }
    if (page === 8) {
      server.replacePod({ ...POD, tag: 'bbbbbbbbbbbb' });
      server.put(numbered(90, 99));
      await server.keep(numbered(90, 95), 'bbbbbbbbbbbb');
    }
  });
  expect(messages).toEqual(named(0, 39));
  expect(await server.all()).toEqual([...named(90, 99), ...named(0, 45)]);
});

test('a cursor in a pod of which nothing was kept goes on with what was before', async () => {
  const server = newServer();
  await server.keep(numbered(0, 3), 'cccccccccccc');
  server.put(numbered(10, 19));
  const { cursor } = await server.read();
  server.replacePod(null);
  // The pod after it is newer than the page.
  await server.keep(numbered(30, 39), 'dddddddddddd');
  expect(await server.all({ cursor })).toEqual(named(0, 3));
  const page = await server.read({ cursor, limit: 1000 });
  expect(page.entries.map(({ message }) => message)).toEqual(named(0, 3));
});

test('the clock of another node does not mix up the logs of two pods', async () => {
  const server = newServer();
  await server.keep(numbered(50, 59), 'cccccccccccc');
  await server.keep(numbered(0, 9));
  server.put(numbered(0, 19));
  for (const limit of [1, 3, 1000])
    expect(await server.all({ limit })).toEqual([...named(0, 19), ...named(50, 59)]);
});
