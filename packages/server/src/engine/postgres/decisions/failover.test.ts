import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { followingWalFile } from '../data/wal-files.ts';
import { choosePlanned, chooseStandby, chooseSuccessor, type Choice } from './failover.ts';
import {
  nextQuorum,
  nextWaitedFor,
  NOBODY,
  quorumSetting,
  replicationConf,
  waitedForOf,
  WAITS_FOR_NOBODY,
  type Quorum,
  type WaitedFor,
} from '../replication/replication-conf.ts';
import { endOfWal, formatLsn, parseLsn, walFileName } from '../data/wal.ts';

const choice = (more: Partial<Choice>): Choice => ({
  candidates: [
    { n: 1, received: 1000n },
    { n: 2, received: 2000n },
  ],
  sync: 0,
  waitedFor: WAITS_FOR_NOBODY,
  end: 2500n,
  maxLostBytes: 1000,
  ...more,
});
const ANY_1_OF_2 = { count: 1, members: [1, 2] };
const waited = (now: Quorum, ...before: Quorum[]): WaitedFor => ({ now, before });
const WHY = { why: expect.any(String) };

test('the standby with the most WAL becomes the primary, and of equals the first', () => {
  expect(chooseStandby([{ received: 1n }, { received: 3n }, { received: 2n }])).toEqual({
    received: 3n,
  });
  expect(choosePlanned([{ n: 2 }, { n: 1 }])).toEqual({ n: 2 });
  expect(choosePlanned([])).toBeUndefined();
});

test.each<[string, Partial<Choice>, unknown]>([
  [
    'the standby with the most WAL takes over, and the possible loss is reported',
    {},
    { n: 2, detail: '500 bytes of WAL may be lost, 0/7D0 to 0/9C4' },
  ],
  ['beyond the limit no standby takes over', { maxLostBytes: 499 }, WHY],
  ['no standby is alive', { candidates: [] }, WHY],
  ['it is not known how much the primary had written', { end: null }, WHY],
  [
    'it is not known, and a synchronous standby has every acknowledged write',
    { end: null, sync: 1, waitedFor: waited({ count: 1, members: [2] }) },
    { n: 2, detail: 'it has every acknowledged write' },
  ],
  [
    'it is not known, and the synchronous standbys had not caught up',
    { end: null, sync: 1, waitedFor: waited({ count: 0, members: [] }) },
    WHY,
  ],
  [
    'a standby with all WAL takes over, no matter which standbys were waited for',
    { sync: 1, waitedFor: waited(ANY_1_OF_2), candidates: [{ n: 1, received: 2500n }] },
    { n: 1, detail: 'it has all that was written' },
  ],
  [
    'one of two synchronous replicas may be the one without',
    { sync: 1, waitedFor: waited(ANY_1_OF_2), candidates: [{ n: 1, received: 2000n }] },
    WHY,
  ],
  [
    'of both, the one with the most has every acknowledged write',
    { sync: 1, waitedFor: waited(ANY_1_OF_2) },
    { n: 2, detail: 'it has every acknowledged write' },
  ],
  [
    'where both were waited for, one is enough',
    {
      sync: 2,
      waitedFor: waited({ count: 2, members: [1, 2] }),
      candidates: [{ n: 1, received: 1n }],
    },
    { n: 1, detail: 'it has every acknowledged write' },
  ],
  [
    'the only one that was waited for',
    {
      sync: 1,
      waitedFor: waited({ count: 1, members: [1] }),
      candidates: [{ n: 1, received: 1n }],
    },
    { n: 1, detail: 'it has every acknowledged write' },
  ],
  [
    'one that was not waited for',
    {
      sync: 1,
      waitedFor: waited({ count: 1, members: [1] }),
      candidates: [{ n: 2, received: 1n }],
    },
    WHY,
  ],
  ['no standby was waited for yet', { sync: 1 }, WHY],
  [
    'the only one that is waited for may lack what the other one acknowledged before',
    {
      sync: 1,
      waitedFor: waited({ count: 1, members: [1] }, ANY_1_OF_2),
      candidates: [{ n: 1, received: 2000n }],
    },
    WHY,
  ],
  [
    'with the other one it is certain again',
    { sync: 1, waitedFor: waited({ count: 1, members: [1] }, ANY_1_OF_2) },
    { n: 2, detail: 'it has every acknowledged write' },
  ],
  [
    'what nobody was waited for may be with nobody',
    {
      sync: 1,
      waitedFor: waited({ count: 1, members: [1] }, NOBODY),
      candidates: [{ n: 1, received: 2000n }],
    },
    WHY,
  ],
])('%s', (_, more, expected) => {
  expect(chooseSuccessor(choice(more))).toEqual(expected);
});

test('the standbys that a primary waits for', () => {
  expect(nextQuorum(0, [1, 2], [1, 2], ANY_1_OF_2)).toEqual(NOBODY);
  expect(nextQuorum(1, [1, 2], [2], ANY_1_OF_2)).toEqual({ count: 1, members: [2] });
  // Too few follow: writes wait, for any of them.
  expect(nextQuorum(1, [1, 2], [], { count: 1, members: [2] })).toEqual(ANY_1_OF_2);
  expect(nextQuorum(2, [1, 2], [1], { count: 2, members: [1, 2] })).toEqual({
    count: 2,
    members: [1, 2],
  });
  // More are asked for than there are yet: nobody waits for one that has still to be made.
  expect(nextQuorum(2, [1, 2], [1], { count: 1, members: [1] })).toEqual({
    count: 1,
    members: [1],
  });
  // Right after a promotion nobody has followed yet.
  expect(nextQuorum(1, [1], [], NOBODY)).toEqual(NOBODY);
});

test('earlier quorums are kept while the current one may lack writes they acknowledged', () => {
  const one = { count: 1, members: [1] };
  const both = { count: 2, members: [1, 2] };
  const next = (to: Quorum, now: Quorum, ...before: Quorum[]) =>
    nextWaitedFor(to, waited(now, ...before));
  expect(next(one, ANY_1_OF_2)).toEqual(waited(one, ANY_1_OF_2));
  expect(next(one, one, ANY_1_OF_2)).toEqual(waited(one, ANY_1_OF_2));
  expect(next(ANY_1_OF_2, one)).toEqual(waited(ANY_1_OF_2));
  expect(next(ANY_1_OF_2, one, ANY_1_OF_2)).toEqual(waited(ANY_1_OF_2));
  expect(next(both, ANY_1_OF_2)).toEqual(waited(both, ANY_1_OF_2));
  expect(next(ANY_1_OF_2, both)).toEqual(waited(ANY_1_OF_2));
  expect(next(one, NOBODY)).toEqual(waited(one, NOBODY));
  expect(next({ count: 1, members: [2] }, one, ANY_1_OF_2, NOBODY)).toEqual(
    waited({ count: 1, members: [2] }, ANY_1_OF_2, NOBODY, one),
  );
  expect(next(NOBODY, one, ANY_1_OF_2)).toEqual(WAITS_FOR_NOBODY);
});

test('the quorums are read back from the file that they were written to', () => {
  for (const waitedFor of [
    WAITS_FOR_NOBODY,
    waited(ANY_1_OF_2),
    waited({ count: 2, members: [0, 2] }, ANY_1_OF_2, NOBODY),
  ]) {
    expect(waitedForOf(replicationConf('member_0', null, waitedFor))).toEqual(waitedFor);
  }
  expect(quorumSetting(ANY_1_OF_2)).toBe('ANY 1 (member_1, member_2)');
  expect(waitedForOf('')).toEqual(WAITS_FOR_NOBODY);
});

test('WAL ends no earlier than the last checkpoint, even if segments were removed', async () => {
  const data = await mkdtemp(join(tmpdir(), 'hdf-'));
  try {
    await mkdir(join(data, 'global'));
    const control = Buffer.alloc(8192);
    control.writeBigUInt64LE(parseLsn('0/5000028'), 32);
    await writeFile(join(data, 'global', 'pg_control'), control);
    expect(await endOfWal(data, 1, parseLsn('0/1000060'), 1n)).toBe(parseLsn('0/5000028'));
    expect(await endOfWal(data, 1, parseLsn('0/6000000'), 1n)).toBe(parseLsn('0/6000000'));
    // A segment that exists and cannot be opened is no end.
    const file = walFileName(1, parseLsn('0/6000000'));
    await mkdir(join(data, 'pg_wal'));
    await symlink(file, join(data, 'pg_wal', file));
    await expect(endOfWal(data, 1, parseLsn('0/6000000'), 1n)).rejects.toThrow(
      'is a symbolic link',
    );
  } finally {
    await rm(data, { recursive: true });
  }
});

test('WAL positions and the files that contain them', () => {
  expect(parseLsn('16/B374D848')).toBe(0x16b374d848n);
  expect(formatLsn(parseLsn('16/B374D848'))).toBe('16/B374D848');
  expect(walFileName(1, parseLsn('0/1000000'))).toBe('000000010000000000000001');
  expect(walFileName(2, parseLsn('16/B374D848'))).toBe('0000000200000016000000B3');
});

test('the next file, on the timeline that the service continued with', () => {
  const history = [{ timeline: '00000001', nextBegins: '000000020000000000000005' }];
  expect(followingWalFile('000000010000000000000003', history)).toBe('000000010000000000000004');
  expect(followingWalFile('000000010000000000000004', history)).toBe('000000020000000000000005');
  expect(followingWalFile('000000010000000000000007', history)).toBe('000000020000000000000005');
  expect(followingWalFile('000000020000000000000005', history)).toBe('000000020000000000000006');
  // Two failovers within one file.
  const twice = [...history, { timeline: '00000002', nextBegins: '000000030000000000000005' }];
  expect(followingWalFile('000000010000000000000004', twice)).toBe('000000030000000000000005');
});
