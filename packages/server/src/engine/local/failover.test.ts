import { expect, test } from 'vitest';
import { followingWalFile } from './backups.ts';
import { chooseSuccessor, type Choice } from './failover.ts';
import { formatLsn, nextQuorum, NOBODY, parseLsn, quorumOf, quorumSetting, replicationConf, walFileName } from './replication.ts';

const choice = (more: Partial<Choice>): Choice => ({
  candidates: [
    { n: 1, received: 1000n },
    { n: 2, received: 2000n },
  ],
  sync: 0,
  inForce: NOBODY,
  end: 2500n,
  lagLimitBytes: 1000,
  ...more,
});
const ANY_1_OF_2 = { count: 1, members: [1, 2] };
const WHY = { why: expect.any(String) };

test.each<[string, Partial<Choice>, unknown]>([
  [
    'the one with the most takes over, and what may be lost is said',
    {},
    { n: 2, detail: '500 bytes of the log may be lost, 0/7D0 to 0/9C4' },
  ],
  ['beyond the limit nobody does', { lagLimitBytes: 499 }, WHY],
  ['nobody is alive', { candidates: [] }, WHY],
  [
    'who has all that was written takes over, whatever was waited for',
    { sync: 1, inForce: ANY_1_OF_2, candidates: [{ n: 1, received: 2500n }] },
    { n: 1, detail: 'it has all that was written' },
  ],
  [
    'one of two synchronous replicas may be the one without',
    { sync: 1, inForce: ANY_1_OF_2, candidates: [{ n: 1, received: 2000n }] },
    WHY,
  ],
  [
    'of both, the one with the most has every acknowledged write',
    { sync: 1, inForce: ANY_1_OF_2 },
    { n: 2, detail: 'it has every acknowledged write' },
  ],
  [
    'where both were waited for, one is enough',
    { sync: 2, inForce: { count: 2, members: [1, 2] }, candidates: [{ n: 1, received: 1n }] },
    { n: 1, detail: 'it has every acknowledged write' },
  ],
  [
    'the only one that was waited for',
    { sync: 1, inForce: { count: 1, members: [1] }, candidates: [{ n: 1, received: 1n }] },
    { n: 1, detail: 'it has every acknowledged write' },
  ],
  ['one that was not waited for', { sync: 1, inForce: { count: 1, members: [1] }, candidates: [{ n: 2, received: 1n }] }, WHY],
  ['nobody was waited for yet', { sync: 1 }, WHY],
])('%s', (_, more, expected) => {
  expect(chooseSuccessor(choice(more))).toEqual(expected);
});

test('whom the primary waits for', () => {
  expect(nextQuorum(0, [1, 2], [1, 2], ANY_1_OF_2)).toEqual(NOBODY);
  expect(nextQuorum(1, [1, 2], [2], ANY_1_OF_2)).toEqual({ count: 1, members: [2] });
  // Too few follow: writes wait, for any of them.
  expect(nextQuorum(1, [1, 2], [], { count: 1, members: [2] })).toEqual(ANY_1_OF_2);
  expect(nextQuorum(2, [1, 2], [1], { count: 2, members: [1, 2] })).toEqual({ count: 2, members: [1, 2] });
  // Right after a promotion nobody has followed yet.
  expect(nextQuorum(1, [1], [], NOBODY)).toEqual(NOBODY);
});

test('a quorum is read back from the file that it was written to', () => {
  for (const quorum of [NOBODY, ANY_1_OF_2, { count: 2, members: [0, 2] }]) {
    expect(quorumOf(replicationConf('member_0', null, quorum))).toEqual(quorum);
  }
  expect(quorumSetting(ANY_1_OF_2)).toBe('ANY 1 (member_1, member_2)');
  expect(quorumOf('')).toEqual(NOBODY);
});

test('positions and the files that hold them', () => {
  expect(parseLsn('16/B374D848')).toBe(0x16b374d848n);
  expect(formatLsn(parseLsn('16/B374D848'))).toBe('16/B374D848');
  expect(walFileName(1, parseLsn('0/1000000'))).toBe('000000010000000000000001');
  expect(walFileName(2, parseLsn('16/B374D848'))).toBe('0000000200000016000000B3');
});

test('the file after one, of the timeline that the service went on with', () => {
  const history = [{ timeline: '00000001', nextBegins: '000000020000000000000005' }];
  expect(followingWalFile('000000010000000000000003', history)).toBe('000000010000000000000004');
  expect(followingWalFile('000000010000000000000004', history)).toBe('000000020000000000000005');
  expect(followingWalFile('000000010000000000000007', history)).toBe('000000020000000000000005');
  expect(followingWalFile('000000020000000000000005', history)).toBe('000000020000000000000006');
  // Two failovers within one file.
  const twice = [...history, { timeline: '00000002', nextBegins: '000000030000000000000005' }];
  expect(followingWalFile('000000010000000000000004', twice)).toBe('000000030000000000000005');
});
