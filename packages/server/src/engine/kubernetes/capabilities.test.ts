import { expect, test } from 'vitest';
import { capabilitiesOf, supports } from './capabilities.ts';

const REGION = {
  code: 'kube',
  domain: null,
  boundsCpu: false,
  images: { 16: 'pg:16', 17: 'pg:17', 18: 'pg:18' },
  extensions: { 17: ['timescaledb', 'vector'], 18: ['vector'] },
  poolerImage: 'pgbouncer:1.25.1',
} as const;

test('a service gets the newest version whose image has its extensions', () => {
  expect(supports(REGION, [], null)).toEqual({ version: '18', major: 18 });
  expect(supports(REGION, ['ai'], null)).toEqual({ version: '18', major: 18 });
  expect(supports(REGION, ['time-series'], null)).toEqual({ version: '17', major: 17 });
  expect(supports(REGION, ['time-series', 'ai'], 17)).toEqual({ version: '17', major: 17 });
});

test('a refusal names the extension that is missing, and where it is', () => {
  expect(supports(REGION, ['time-series', 'ai'], 18)).toEqual({
    missing:
      'no image of PostgreSQL 18 with timescaledb and vector is named for the region kube ' +
      '(howdah region set-images); that of PostgreSQL 17 has it',
  });
  expect(supports({ ...REGION, extensions: {} }, ['time-series'], null)).toEqual({
    missing:
      'no image of PostgreSQL 18, 17, 16 with timescaledb is named for the region kube ' +
      '(howdah region set-images)',
  });
  expect(supports(REGION, ['ai'], 19)).toEqual({
    missing: 'the region kube has no image of PostgreSQL 19; it has 18, 17, 16',
  });
});

test('the cost of a fork is that of a snapshot where the cluster has them', () => {
  const costOf = (snapshots: boolean) =>
    capabilitiesOf(REGION, { snapshots, archive: null }, null).forkCost;
  expect(costOf(true)).toContain('takes a snapshot');
  expect(costOf(false)).toContain('by pg_basebackup, after a checkpoint');
});

test('each type has the versions that it can have', () => {
  const { types, versions } = capabilitiesOf(REGION, { snapshots: true, archive: null }, null);
  expect(types).toMatchObject({ TIMESCALEDB: { major: 17 }, VECTOR: { major: 18 } });
  expect(versions.VECTOR.map((one) => 'version' in one)).toEqual([true, true, false]);
});
