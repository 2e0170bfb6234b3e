import { expect, test } from 'vitest';
import { EngineUnavailable, StatementRefused } from '../engine.ts';
import {
  READER_SECRET,
  newSpec,
  openCloud,
  untilAwaited,
  untilStep,
  ID,
} from './engine.testing.ts';
import { whyUnsafe } from './statements.ts';

const SAFE = { isUnlimited: false, owner: null, granted: null };

test('a role with other rights runs no statement', () => {
  expect(whyUnsafe(SAFE)).toBe(null);
  expect(whyUnsafe(null)).toBeInstanceOf(EngineUnavailable);
  expect(whyUnsafe({ ...SAFE, owner: 'friend' })?.message).toContain('drop role howdah_reader');
  expect(whyUnsafe({ ...SAFE, granted: 'friend' })?.message).toContain(
    'revoke friend from howdah_reader',
  );
  expect(whyUnsafe({ ...SAFE, isUnlimited: true })).toBeInstanceOf(StatementRefused);
});

test('the password of the role is made once, and statements say when it is gone', async () => {
  const cloud = await openCloud();
  try {
    const spec = await newSpec(cloud);
    await untilAwaited(cloud, spec);
    const before = cloud.fake.objects.get(READER_SECRET);
    expect(before).toMatchObject({ metadata: { labels: { 'howdah.io/service': ID } } });
    await untilStep(cloud, { ...spec, storageGb: 20 }, 'grow volume');
    expect(cloud.fake.objects.get(READER_SECRET)).toEqual(before);
    cloud.fake.take(READER_SECRET);
    const statement = { sql: 'select 1', parameters: [], maxRows: 1, timeoutMs: 1000 };
    const asked = cloud.engine.sql.query(ID, null, statement);
    await expect(asked).rejects.toThrow('CloudNativePG has not made its role howdah_reader yet');
  } finally {
    await cloud.close();
  }
});
