/** Names of services, and names that nobody has. */
import { expect, test } from 'vitest';
import { createExpiring, createRoutes, TooManyLookups } from './routes.ts';

const ID = 'abcdefghij';
const NAME = `${ID}.db.example.com`;
const TARGET = `s-${ID}-endpoint.howdah-projectabc.svc`;

class NoName extends Error {
  readonly code = 'ENOTFOUND';
}

function routesTo(targets: Readonly<Record<string, string>>) {
  const asked: string[] = [];
  const clock = { ms: 0 };
  const answer = async (name: string, value: string | undefined): Promise<string[]> => {
    asked.push(name);
    if (value === undefined) throw new NoName(name);
    return [value];
  };
  const names = {
    resolveCname: (name: string) => answer(name, targets[name]),
    resolve4: (name: string) => answer(name, '10.0.0.1'),
    resolve6: (name: string) => answer(name, undefined),
  };
  return { routes: createRoutes(names, 'cluster.local', () => clock.ms), asked, clock };
}

const routeOf = (label: string) => `db-${label}.howdah-gateway.svc.cluster.local`;

test('a service, a read replica set and a pooler have a route', async () => {
  const { routes, asked } = routesTo({
    [routeOf(ID)]: TARGET,
    [routeOf('0123456789')]: 'r-0123456789-endpoint.howdah-projectabc.svc',
    [routeOf(`${ID}-pooler`)]: `s-${ID}-pooler.howdah-projectabc.svc`,
  });
  const address = '10.0.0.1';
  expect(await routes.find(NAME)).toEqual({ address, project: 'projectabc', service: ID });
  expect(await routes.find('0123456789.db.example.com')).toMatchObject({ service: '0123456789' });
  expect(await routes.find(`${ID}-pooler.x`)).toMatchObject({ service: `${ID}-pooler` });
  expect(asked.slice(0, 2)).toEqual([routeOf(ID), `${TARGET}.cluster.local`]);
});

test.each([
  ['another namespace', `s-${ID}-endpoint.kube-system.svc`],
  ['that of the control plane', `s-${ID}-endpoint.howdah.svc`],
  ['that of the gateway', `s-${ID}-endpoint.howdah-gateway.svc`],
  ['another service', 's-0123456789-endpoint.howdah-projectabc.svc'],
  ['the pooler', `s-${ID}-pooler.howdah-projectabc.svc`],
  ['a name of the internet', 'example.com'],
  ['a longer name', `${TARGET}.example.com`],
  ['a pod', `10-0-0-1.${TARGET}`],
])('a route to %s is none', async (_what, target) => {
  const { routes, asked } = routesTo({ [routeOf(ID)]: target });
  expect(await routes.find(NAME)).toBe(null);
  expect(asked).toEqual([routeOf(ID)]);
});

test.each(['', ID, 'x.example.com', `${ID}_.x`, `${ID}-poolers.x`, `a.${NAME}`, `${ID}\n.x`])(
  'the name %j is not asked for',
  async (name) => {
    const { routes, asked } = routesTo({});
    expect(await routes.find(name)).toBe(null);
    expect(asked).toEqual([]);
  },
);

test('answers and misses are kept for a while, and asked for once at a time', async () => {
  const { routes, asked, clock } = routesTo({ [routeOf(ID)]: TARGET });
  await Promise.all([routes.find(NAME), routes.find(NAME), routes.find(NAME)]);
  clock.ms = 4999;
  await routes.find(NAME);
  expect(asked).toHaveLength(2);
  clock.ms = 5000;
  await routes.find(NAME);
  expect(asked).toHaveLength(4);
  const missing = '0123456789.x';
  await Promise.all([routes.find(missing), routes.find(missing)]);
  clock.ms = 5999;
  expect(await routes.find(missing)).toBe(null);
  expect(asked).toHaveLength(5);
  clock.ms = 6000;
  await routes.find(missing);
  expect(asked).toHaveLength(6);
});

test('few names are looked up at a time, and few wait', async () => {
  let running = 0;
  const begun: (() => void)[] = [];
  const never = (): Promise<string[]> => {
    running += 1;
    return new Promise((resolve) => begun.push(() => resolve([])));
  };
  const names = { resolveCname: never, resolve4: never, resolve6: never };
  const routes = createRoutes(names, 'cluster.local', () => 0);
  const name = (number: number) => `${String(number).padStart(10, '0')}.x`;
  const all = Array.from({ length: 512 }, (_, number) => routes.find(name(number)));
  await expect(routes.find(name(512))).rejects.toThrow(TooManyLookups);
  expect(running).toBe(32);
  while (begun.length > 0) {
    begun.splice(0).forEach((end) => end());
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect(await Promise.all(all)).toEqual(all.map(() => null));
});

test('a DNS that does not answer is no miss', async () => {
  const down = async (): Promise<string[]> => {
    throw Object.assign(new Error('timeout'), { code: 'ETIMEOUT' });
  };
  const names = { resolveCname: down, resolve4: down, resolve6: down };
  const routes = createRoutes(names, 'cluster.local', () => 0);
  await expect(routes.find(NAME)).rejects.toThrow('timeout');
});

test('the oldest entry is forgotten when there are too many', () => {
  const map = createExpiring<number>(2, 10, () => 0);
  for (const key of ['a', 'b', 'a', 'c']) map.set(key, 1);
  expect(['a', 'b', 'c'].map((key) => map.get(key))).toEqual([1, undefined, 1]);
});
