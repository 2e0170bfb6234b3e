import { expect, test } from 'vitest';
import { whyNotOwn } from './own-forks.ts';

const fork = {
  name: 'trial',
  created_by: 'ours',
  forked_from: { project_id: 'p', service_id: 'aaaaaaaaaa', is_standby: false },
  metadata: { environment: 'DEV' as const },
  read_replica_sets: [],
};

test('statements that write run on forks that the key has made, and nowhere else', () => {
  const { forked_from: parent, created_by: _maker, ...plain } = fork;
  expect(whyNotOwn(fork, 'ours')).toBeNull();
  expect(whyNotOwn(fork, 'theirs')).toContain('another key');
  expect(whyNotOwn({ ...plain, forked_from: parent }, 'ours')).toContain('another key');
  expect(whyNotOwn({ ...plain, created_by: 'ours' }, 'ours')).toContain('no fork');
  const set = { ...fork, forked_from: { ...parent, is_standby: true } };
  expect(whyNotOwn(set, 'ours')).toContain('read replica set');
  const prod = { ...fork, metadata: { environment: 'PROD' as const } };
  expect(whyNotOwn(prod, 'ours')).toContain('PROD');
  const read = { ...fork, read_replica_sets: [prod] };
  expect(whyNotOwn(read, 'ours')).toContain('PROD');
});
