import { expect, test } from 'vitest';
import { segmentsOf, strayGroups, strayImages, strayLists, straySegments } from './leftovers.ts';

const NOW = 1_000_000_000;
const old = NOW - 3_600_000;
const young = NOW - 1000;

test('shared memory that no server uses is found by user, and no young or used segment', () => {
  const segments = [
    { name: 'PostgreSQL.1', uid: 70_000, changedMs: old },
    { name: 'PostgreSQL.2', uid: 70_000, changedMs: old },
    { name: 'PostgreSQL.3', uid: 70_000, changedMs: young },
    { name: 'PostgreSQL.4', uid: 70_000, changedMs: old },
    { name: 'PostgreSQL.5', uid: 70_001, changedMs: old },
  ];
  expect(straySegments(segments, new Set(['PostgreSQL.4']), NOW)).toEqual([
    {
      found: 'shared memory of user 70000 belongs to no running server (segments: 2)',
      remedy: 'rm /dev/shm/PostgreSQL.1 /dev/shm/PostgreSQL.2',
    },
    {
      found: 'shared memory of user 70001 belongs to no running server (segments: 1)',
      remedy: 'rm /dev/shm/PostgreSQL.5',
    },
  ]);
});

test('a control segment lists the segments of its server, and nothing else does', () => {
  const control = Buffer.alloc(16 + 3 * 40);
  control.writeUInt32LE(0x9a503d32, 0);
  control.writeUInt32LE(2, 4);
  control.writeUInt32LE(17, 16);
  control.writeUInt32LE(4_000_000_000, 16 + 40);
  expect(segmentsOf(control)).toEqual(['PostgreSQL.17', 'PostgreSQL.4000000000']);
  control.writeUInt32LE(0xffffffff, 4); // what it says is not believed
  expect(segmentsOf(control)).toHaveLength(3);
  control.writeUInt32LE(0, 0);
  expect(segmentsOf(control)).toEqual([]);
  expect(segmentsOf(Buffer.alloc(0))).toEqual([]);
});

test('a list of mounts is found after some minutes, and no file of another name', () => {
  const name = 'howdah-0123456789abcdef';
  const files = [name, 'howdah-other', 'sem.x'].map((each) => ({
    name: each,
    uid: 0,
    changedMs: old,
  }));
  expect(strayLists(files, NOW).map(({ remedy }) => remedy)).toEqual([`rm /dev/shm/${name}`]);
  expect(strayLists([{ name, uid: 0, changedMs: young }], NOW)).toEqual([]);
});

test('an old cgroup without a process, of an unknown installation, is found', () => {
  const group = {
    name: 'howdah-0badf00d',
    paths: ['/a/howdah-0badf00d', '/b/howdah-0badf00d'],
    hasProcess: false,
    changedMs: old,
  };
  expect(strayGroups([group], new Set(), NOW)).toEqual([
    {
      found:
        'cgroup howdah-0badf00d has no process and belongs to no installation that is known here',
      remedy: 'find /a/howdah-0badf00d /b/howdah-0badf00d -type d -delete',
    },
  ]);
  expect(strayGroups([group], new Set([group.name]), NOW)).toEqual([]);
  expect(strayGroups([{ ...group, hasProcess: true }], new Set(), NOW)).toEqual([]);
  expect(strayGroups([{ ...group, changedMs: young }], new Set(), NOW)).toEqual([]);
});

test('a store image is found whose file is deleted, and where it is mounted', () => {
  const mounts =
    '36 35 98:0 / /srv/h/data rw,noatime shared:1 - xfs /dev/loop1 rw\n' +
    '37 35 98:0 / /else rw - xfs /dev/loop10 rw';
  const devices = [
    { device: '/dev/loop1', file: '/srv/h/data.img (deleted)' },
    { device: '/dev/loop2', file: '/srv/i/data.img.new (deleted)' },
    { device: '/dev/loop3', file: '/srv/k/data.img' },
    { device: '/dev/loop10', file: '/srv/other.disk (deleted)' },
  ];
  expect(strayImages(devices, mounts)).toEqual([
    {
      found:
        '/dev/loop1 holds the store image /srv/h/data.img, which is deleted, ' +
        'and is mounted on /srv/h/data',
      remedy: 'umount /srv/h/data',
    },
    {
      found: '/dev/loop2 holds the store image /srv/i/data.img.new, which is deleted',
      remedy: 'losetup --detach /dev/loop2',
    },
  ]);
});
