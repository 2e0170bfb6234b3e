/**
 * The metrics endpoint, and the board that is made for it: what the one names, the other has; and
 * that Grafana can take it.
 */
import { readFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo, install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { until } from './until.ts';

const docs = new URL('../../../docs/', import.meta.url);

type Panel = {
  id: number;
  type: string;
  title: string;
  datasource?: { type: string; uid: string };
  gridPos: { x: number; y: number; w: number; h: number };
  targets?: { refId: string; expr: string; datasource?: { uid: string } }[];
  fieldConfig?: { defaults: { unit: string } };
};
type Variable = {
  name: string;
  type: string;
  query: string | { query: string };
  datasource?: { uid: string };
};
type Board = {
  id: null;
  uid: string;
  title: string;
  schemaVersion: number;
  version: number;
  panels: Panel[];
  templating: { list: Variable[] };
  time: { from: string; to: string };
};

let cloud: Installation;
let service: Service;
let board: Board;
let text: string;
/** By family: the labels that its samples carry. */
let families: Map<string, Set<string>>;
let expressions: string[];

const scrape = async (): Promise<string> =>
  (await fetch(`http://127.0.0.1:${cloud.port}/metrics`)).text();

beforeAll(async () => {
  cloud = await install();
  service = await cloud.create({ name: 'watched', service_type: 'POSTGRES' });
  await until('the sampler has figures of the service', async () => {
    text = await scrape();
    return text.includes(`howdah_service_memory_bytes{service="${service.service_id}"`);
  });
  families = familiesOf(text);
  board = JSON.parse(await readFile(new URL('grafana/howdah.json', docs), 'utf8'));
  expressions = [
    ...board.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr)),
    ...board.templating.list.flatMap(({ query }) =>
      typeof query === 'string' ? [] : [query.query],
    ),
  ];
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});

/** A figure of the first server of a service, in the last scrape. */
function figureOf(name: string, id: string): number {
  const line = new RegExp(`^howdah_service_${name}\\{service="${id}",node="0"\\} (.*)$`, 'm');
  return Number(line.exec(text)?.[1]);
}

function familiesOf(scraped: string): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  let family = '';
  for (const line of scraped.split('\n')) {
    family = /^# TYPE (\S+)/.exec(line)?.[1] ?? family;
    if (family !== '' && !found.has(family)) found.set(family, new Set());
    if (line.startsWith('#')) continue;
    for (const [, label = ''] of (/\{(.*)\}/.exec(line)?.[1] ?? '').matchAll(/([a-z_]+)="/g))
      found.get(family)?.add(label);
  }
  return found;
}

/** A histogram has three series. */
const familyOf = (name: string): string =>
  families.has(name) ? name : name.replace(/_(bucket|sum|count)$/, '');
const METRIC = /\b(?:howdah|process|nodejs)_[a-z0-9_]+/g;

test('the board has every metric, or says that it is left out, and no other', async () => {
  const named = new Set(
    expressions.flatMap((expr) => [...expr.matchAll(METRIC)].map(([name]) => familyOf(name))),
  );
  expect([...named].filter((name) => !families.has(name))).toEqual([]);
  const page = await readFile(new URL('monitoring.md', docs), 'utf8');
  const section = /### Not on the board\n(.*?)\n## /s.exec(page)?.[1] ?? '';
  const leftOut = new Set([...section.matchAll(METRIC)].map(([name]) => name));
  expect([...families.keys()].filter((name) => !named.has(name) && !leftOut.has(name))).toEqual([]);
  expect([...leftOut].filter((name) => named.has(name) || !families.has(name))).toEqual([]);
  // The page's table has all of ours.
  for (const name of families.keys())
    if (name.startsWith('howdah_')) expect(page, name).toContain(`| \`${name}\` |`);
});

/** The labels that Prometheus adds to the series that it scrapes. */
const ADDED = ['instance', 'job'];
/** The labels of families that have no sample here: nothing is replicated, nobody streams. */
const DECLARED: Record<string, string[]> = {
  howdah_replica_lag_bytes: ['service', 'node'],
  howdah_replica_lag_seconds: ['service', 'node'],
  howdah_replica_following: ['service', 'node'],
  howdah_replica_serving: ['service', 'node'],
  howdah_service_write_wait_millis: ['service', 'node'],
};

test('every label that the board asks for is on its metric', () => {
  let asked = 0;
  for (const expr of expressions) {
    const names = [...expr.matchAll(METRIC)].map(([name]) => familyOf(name));
    const has = new Set([
      ...names.flatMap((name) => [...(families.get(name) ?? []), ...(DECLARED[name] ?? [])]),
      ...ADDED,
    ]);
    const matched = [...expr.matchAll(/\{([^}]*)\}/g)].flatMap(([, inside = '']) =>
      [...inside.matchAll(/([a-z_]+)(?:=~|!~|!=|=)"/g)].map(([, label]) => label),
    );
    const grouped = [...expr.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, inside = '']) =>
      inside.split(',').map((label) => label.trim()),
    );
    const listed = [...expr.matchAll(/label_values\(.*, ([a-z]+)\)$/g)].map(([, label]) => label);
    for (const label of [...matched, ...grouped, ...listed]) {
      expect(has.has(label ?? ''), `${label} in ${expr}`).toBe(true);
      asked++;
    }
  }
  expect(asked).toBeGreaterThan(40);
});

test('it has the shape that an import takes: ids, a grid without gaps, declared variables', () => {
  expect(board).toMatchObject({
    id: null,
    uid: 'howdah',
    title: 'Howdah',
    version: expect.any(Number),
    time: { from: 'now-6h', to: 'now' },
  });
  expect(board.schemaVersion).toBeGreaterThanOrEqual(36);
  // An export for sharing has these, and asks for them by hand.
  expect(Object.keys(board)).not.toContain('__inputs');
  const ids = board.panels.map(({ id }) => id);
  expect(new Set(ids).size).toBe(ids.length);
  const taken = new Set<string>();
  for (const { title, gridPos, type, targets = [], datasource, fieldConfig } of board.panels) {
    expect(title).not.toBe('');
    expect(gridPos.x + gridPos.w, title).toBeLessThanOrEqual(24);
    for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++)
      for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
        expect(taken.has(`${x},${y}`), `${title} covers another`).toBe(false);
        taken.add(`${x},${y}`);
      }
    if (type === 'row') continue;
    expect(['stat', 'timeseries', 'bargauge'], title).toContain(type);
    expect(datasource, title).toEqual({ type: 'prometheus', uid: '${datasource}' });
    expect(fieldConfig?.defaults.unit, title).not.toBe('');
    expect(targets.length, title).toBeGreaterThan(0);
    expect(new Set(targets.map(({ refId }) => refId)).size, title).toBe(targets.length);
    for (const target of targets) expect(target.datasource?.uid, title).toBe('${datasource}');
  }
  const variables = board.templating.list.map(({ name }) => name);
  expect(variables).toEqual(['datasource', 'instance', 'service']);
  const used = new Set(
    [...JSON.stringify(board).matchAll(/\$\{?([a-z][a-z_]*)\}?/g)].map(([, name]) => name ?? ''),
  );
  expect([...used].filter((name) => !name.startsWith('__') && !variables.includes(name))).toEqual(
    [],
  );
  expect([...used].toSorted()).toEqual(['datasource', 'instance', 'service']);
});

test('a service whose sessions want more processors than there are waits', async () => {
  const id = service.service_id;
  const password = service.initial_password ?? '';
  const sessions = await Promise.all(
    Array.from({ length: Math.min(40, availableParallelism() * 2 + 2) }, () =>
      connectTo(cloud, service, password),
    ),
  );
  const loops = sessions.map((session) =>
    session.query('select count(*) from generate_series(1, 1e12::bigint)').catch(() => undefined),
  );
  try {
    await until('it waits for CPU', async () => {
      await cloud.round('samples');
      return (await cloud.get(id)).waits?.cpu !== undefined;
    });
    expect((await cloud.get(id)).waits?.cpu).toMatchObject({ millis: expect.any(Number) });
    text = await scrape();
    expect(figureOf('cpu_wait_millis', id)).toBeGreaterThanOrEqual(200);
    expect(figureOf('cpu_guaranteed_millis', id)).toBe(500);
  } finally {
    for (const session of sessions) session.connection.stream.destroy();
    await Promise.all(loops);
  }
  await until('it does not wait any more', async () => {
    await cloud.round('samples');
    return (await cloud.get(id)).waits === undefined;
  });
});

test('a service is told of while it runs, and its figures go with it', async () => {
  const id = service.service_id;
  expect(text).toContain(`howdah_service_up{service="${id}",type="POSTGRES"} 1`);
  for (const name of ['memory_bytes', 'storage_bytes'])
    expect(figureOf(name, id), name).toBeGreaterThan(1e6);
  await cloud.request('POST', `/services/${id}/stop`);
  await cloud.until(id, 'PAUSED');
  expect(await scrape()).not.toContain(id);
});

test('the calls of this very test are counted', () => {
  expect(text).toMatch(
    /howdah_http_request_duration_seconds_count\{operation="createService",status="202"\} 1/,
  );
});
