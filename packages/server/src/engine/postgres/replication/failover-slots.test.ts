/** Which slots go on when the primary changes, and what makes their consumers wait. */
import { expect, test } from 'vitest';
import {
  nextSlotsAhead,
  NOBODY,
  replicationConf,
  slotsAheadOf,
  synchronisesSlots,
  waitedForOf,
  WAITS_FOR_NOBODY,
} from './replication-conf.ts';
import { laggingSlots, missingSlots, sayOfSlots, slotsOnAll } from './failover-slots.ts';

const at = (name: string, confirmed: string | null = '0/10') => ({ name, confirmed });

test('consumers wait for the standbys that commits wait for, else for those that stream', () => {
  const both = ['member_0', 'member_1', 'member_2'];
  expect(nextSlotsAhead(NOBODY, [2, 1], both)).toEqual(['member_1', 'member_2']);
  // A dead standby keeps no changes from consumers ...
  expect(nextSlotsAhead(NOBODY, [2], both)).toEqual(['member_2']);
  // ... but a change that no commit has acknowledged yet is not theirs.
  expect(nextSlotsAhead({ count: 1, members: [1] }, [], both)).toEqual(['member_1']);
  // All consumers would wait for a slot that does not exist.
  expect(nextSlotsAhead({ count: 1, members: [1, 2] }, [1], ['member_1'])).toEqual(['member_1']);
});

test('a primary has the slots that consumers wait for in its file, and they are read back', () => {
  const quorum = { count: 1, members: [1, 2] };
  const conf = replicationConf(
    'member_0',
    null,
    { now: quorum, before: [] },
    {
      slotsAhead: ['member_1', 'member_2'],
    },
  );
  expect(conf).toContain("synchronized_standby_slots = 'member_1, member_2'\n");
  expect(slotsAheadOf(conf)).toEqual(['member_1', 'member_2']);
  expect(waitedForOf(conf).now).toEqual(quorum);
  const nobody = replicationConf('member_0', null, WAITS_FOR_NOBODY, { slotsAhead: [] });
  expect(nobody).toContain("synchronized_standby_slots = ''\n");
  expect(slotsAheadOf(nobody)).toEqual([]);
});

test('a standby of an older PostgreSQL has none of the settings, which it does not know', () => {
  const upstream = { paths: { socket: '/srv/a/run' }, port: 20_001 };
  const confOf = (withSlots: boolean) =>
    replicationConf('member_1', { ...upstream, withSlots }, WAITS_FOR_NOBODY);
  expect(confOf(true)).toContain(
    "= 'host=/srv/a/run port=20001 user=howdah_slots dbname=postgres application_name=member_1'",
  );
  expect(confOf(true)).toContain('\nhot_standby_feedback = on\n');
  expect(synchronisesSlots(confOf(true))).toBe(true);
  expect(synchronisesSlots(confOf(false))).toBe(false);
  for (const conf of [confOf(false), replicationConf('member_0', null, WAITS_FOR_NOBODY)])
    expect(conf).not.toMatch(/sync_replication|hot_standby|synchronized|howdah_slots/);
});

test('a standby lacks slots, or has them at positions that consumers have passed', () => {
  const primary = [at('a'), at('b', '0/20'), at('c')];
  const standby = [at('a'), at('b'), at('of a former one')];
  expect(missingSlots(primary, standby)).toEqual(['c']);
  expect(laggingSlots(primary, standby)).toEqual(['b']);
});

test('a switchover names the slots that go on, and those that it has removed', () => {
  expect(sayOfSlots([], [], [])).toEqual([]);
  expect(sayOfSlots(['a', 'b'], ['b'], [])).toEqual([
    'replication slots, which the new primary has not, were removed: a',
    'failover slots go on: b',
  ]);
  expect(sayOfSlots(['a', 'b'], ['b'], ['a', 'b']).at(-1)).toMatch(/twice: b$/);
});

test('a slot that one of two standbys lacks may not go on', () => {
  const one = [at('a'), at('b')];
  expect(slotsOnAll([one, [at('b')]])).toEqual(['b']);
  expect(slotsOnAll([one])).toEqual(['a', 'b']);
  expect(slotsOnAll([])).toEqual([]);
});
