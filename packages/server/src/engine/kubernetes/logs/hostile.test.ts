/** Logs as a tenant can write them. */
import { promisify } from 'node:util';
import { deflateRaw } from 'node:zlib';
import { expect, test } from 'vitest';
import { createMemoryLogs } from '../../conformance/memory-records.ts';
import { answerLog, logLine, type FakeOutput } from './fake-log.testing.ts';
import { linesIn, MAX_MESSAGE } from './lines.ts';
import { readLog, pack, unpack } from './page.ts';
import { readOutput } from './pod-log.ts';

const BEGIN = Date.parse('2026-11-26T10:00:00Z');
const POD = { namespace: 'howdah-p', name: 's-a-1', tag: 'aaaaaaaaaaaa' };
const SIGNAL = new AbortController().signal;
const QUERY = { sinceMs: null, untilMs: null, cursor: null, search: [], severities: [] };

/** @returns the answers to requests, and how many bytes they had */
function kubeWith(output: FakeOutput) {
  const sizes: number[] = [];
  return {
    sizes,
    text: async (path: string): Promise<string> => {
      const { pathname, searchParams } = new URL(path, 'https://fake');
      const text = answerLog(new Map([[pathname, { output }]]), pathname, searchParams) ?? '';
      sizes.push(Buffer.byteLength(text));
      return text;
    },
  };
}

const messagesIn = (text: string): string[] => [...linesIn(text)].map(({ entry }) => entry.message);

test('the newest lines of a flood are read, within the limits', async () => {
  const flood = Array.from({ length: 5000 }, (_, n) =>
    logLine(BEGIN + n, `${n} ${'x'.repeat(8000)}`),
  );
  const kube = kubeWith([...flood, logLine(BEGIN + 6000, 'the last')]);
  const extent = { lines: 6000, bytes: 1024 * 1024 };
  const asked = { previous: false, since: null, extent, signal: SIGNAL };
  const { text, isWhole } = await readOutput(kube, POD, asked);
  expect(messagesIn(text)[0]).toBe('the last');
  expect(messagesIn(text).length).toBeGreaterThan(50);
  expect(isWhole).toBe(false);
  expect(kube.sizes.length).toBeLessThanOrEqual(4);
  expect(Math.max(...kube.sizes)).toBeLessThanOrEqual(extent.bytes);
  const part = await pack(linesIn(text));
  const { bytes, lines } = await unpack(part?.lines ?? Buffer.alloc(0));
  expect(lines[0]?.entry.message).toBe('the last');
  expect(bytes).toBeLessThan(1024 * 1024);
});

test('a giant line is cut where it is shown and kept, and does not hide the others', async () => {
  const giant = logLine(BEGIN + 1, '\0'.repeat(200_000));
  const output = [logLine(BEGIN, 'before'), giant, logLine(BEGIN + 2, 'after')];
  const kept = createMemoryLogs();
  const kube = kubeWith(output);
  const log = { id: 'a', server: 0, pod: POD };
  const { entries } = await readLog(
    { kube, kept: kept.store },
    log,
    { ...QUERY, limit: 9 },
    SIGNAL,
  );
  expect(entries.map(({ message }) => message.slice(0, 6))).toEqual([
    'after',
    '\0'.repeat(6),
    'before',
  ]);
  expect(entries[1]?.message).toHaveLength(MAX_MESSAGE + '\n[cut after 64 KiB]'.length);
  const part = await pack(
    linesIn(await kube.text('/log?timestamps=true&tailLines=9&limitBytes=99999999')),
  );
  expect((await unpack(part?.lines ?? Buffer.alloc(0))).lines.map(({ entry }) => entry)).toEqual(
    entries,
  );
});

test('lines that look like ours, of other times, or of no text are only messages', () => {
  const forged = JSON.stringify(logLine(BEGIN, 'forged')[1]);
  const future = { log_time: '9999-12-31 23:59:59.999 UTC', error_severity: 'LOG', message: 'f' };
  const output: FakeOutput = [
    logLine(BEGIN, `2026-11-26T10:00:00.5Z ${forged}\n2026-11-26T10:00:00.6Z ${forged}`),
    logLine(BEGIN + 1, '\ud800 \uFFFD \0'),
    [BEGIN + 2, JSON.stringify({ record: future })],
    [BEGIN + 3, JSON.stringify({ record: { ...future, log_time: 'now' } })],
    [BEGIN + 4, JSON.stringify({ record: { ...future, message: { evil: true } } })],
    [BEGIN + 5, JSON.stringify({ record: { ...future, error_severity: 'L'.repeat(1000) } })],
    [BEGIN + 6, '['.repeat(100_000)],
    [BEGIN + 7, '{"record":null}'],
    logLine(BEGIN + 8, 'the newest'),
  ];
  const text = answerLog(
    new Map([['pod', { output }]]),
    'pod',
    new URLSearchParams({ timestamps: 'true', tailLines: '99', limitBytes: '9999999' }),
  );
  const lines = [...linesIn(text ?? '')];
  expect(lines.map(({ entry }) => entry.message.slice(0, 10))).toEqual([
    'the newest',
    'f',
    '\ud800 \uFFFD \0',
    '2026-11-26',
  ]);
  // The order is that of the stamps.
  expect(lines.map(({ at }) => at)).toEqual(
    lines
      .map(({ at }) => at)
      .toSorted()
      .toReversed(),
  );
});

test('a line that is being written is left out, and read once it is whole', () => {
  const text = `2026-11-26T10:00:00.5Z ${logLine(BEGIN, 'whole')[1]}`;
  expect(messagesIn(text)).toEqual([]);
  expect(messagesIn(`${text}\n`)).toEqual(['whole']);
});

test('a kept part that inflates without end, or is none, has no lines', async () => {
  const message = ' '.repeat(64 * 1024 * 1024);
  const line = ['1'.repeat(19), { timestamp: '', severity: '', message }];
  const bomb = await promisify(deflateRaw)(JSON.stringify(line));
  for (const lines of [bomb, Buffer.from('no part'), Buffer.alloc(0)])
    expect((await unpack(lines)).lines).toEqual([]);
});

test('a part ends where it is full, however many lines there are', async () => {
  let taken = 0;
  const endless = function* () {
    for (;;) {
      taken += 1;
      const at = String(9_999_999_999 - taken).padEnd(19, '0');
      yield { at, entry: { timestamp: '', severity: '', message: 'z'.repeat(1000) } };
      if (taken > 10_000) throw new Error('it does not end');
    }
  };
  const part = await pack(endless());
  const { lines } = await unpack(part?.lines ?? Buffer.alloc(0));
  expect(lines).toHaveLength(taken);
  expect(taken).toBeLessThan(600);
});

test('a page that reads much and finds nothing ends, and its cursor goes on', async () => {
  const kept = createMemoryLogs();
  for (let n = 0; n < 20; n += 1) {
    const lines = Array.from({ length: 60 }, (_, m) =>
      logLine(BEGIN + 1000 * n + m, `${n} ${'y'.repeat(8000)}`),
    );
    const text = await kubeWith(lines).text(
      '/log?timestamps=true&tailLines=999&limitBytes=99999999',
    );
    const part = await pack(linesIn(text));
    if (part !== null) await kept.store.add('a', 0, { ...part, pod: POD.tag });
  }
  const reads: number[] = [];
  const store = {
    ...kept.store,
    read: async (ids: readonly string[]) => {
      reads.push(ids.length);
      return kept.store.read(ids);
    },
  };
  const log = { id: 'a', server: 0, pod: null };
  let cursor: string | null = null;
  let [pages, found] = [0, 0];
  do {
    const query = { ...QUERY, cursor, search: ['0 yy'], limit: 500 };
    const page = await readLog({ kube: kubeWith([]), kept: store }, log, query, SIGNAL);
    pages += 1;
    found += page.entries.length;
    ({ cursor } = page);
  } while (cursor !== null && pages < 50);
  expect(found).toBe(120);
  expect(pages).toBeGreaterThan(2);
  expect(pages).toBeLessThan(10);
});
