import { expect, test } from 'vitest';
import { createRoutes } from './unknown-routes.ts';

const routes = createRoutes();
for (const [method, url] of [
  ['GET', '/services/:service_id'],
  ['DELETE', '/services/:service_id'],
  ['GET', '/services/deleted'],
  ['POST', '/services/:service_id/stop'],
  ['GET', '/services/:service_id/backups'],
  ['POST', '/services/:service_id/backups/run'],
  ['DELETE', '/services/:service_id/:thing'],
  ['GET', '/pages/*'],
] as const)
  routes.add(method, url);
const methodsOf = (path: string) => [...(routes.find(path)?.methods ?? [])];

test('the methods of a path are those of the route that it names, not of its neighbours', () => {
  expect(methodsOf('/services/deleted')).toEqual(['GET']);
  expect(methodsOf('/services/abc')).toEqual(['GET', 'DELETE']);
  expect(methodsOf('/services/abc/stop')).toEqual(['POST']);
  expect(methodsOf('/services/deleted/stop')).toEqual(['POST']);
  expect(methodsOf('/services/abc/backups')).toEqual(['GET']);
  expect(methodsOf('/services/abc/other')).toEqual(['DELETE']);
  expect(methodsOf('/services/abc/backups/run')).toEqual(['POST']);
  expect(methodsOf('/pages/one/two')).toEqual(['GET']);
  expect(methodsOf('/nothing')).toEqual([]);
});

test('a path with a route of its own is none of a route with a parameter in its place', () => {
  const moreLiteral = (chosen: string, url: string) => routes.moreLiteral(chosen, url)?.url ?? null;
  expect(moreLiteral('/services/:service_id', '/services/deleted?x=1')).toBe('/services/deleted');
  expect(moreLiteral('/services/:service_id', '/services/abc')).toBeNull();
  expect(moreLiteral('/services/:service_id/:thing', '/services/abc/stop')).toBe(
    '/services/:service_id/stop',
  );
  expect(moreLiteral('/services/deleted', '/services/deleted')).toBeNull();
  expect(moreLiteral('/services/:service_id/stop', '/services/deleted/stop')).toBeNull();
});
