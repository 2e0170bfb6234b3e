import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ConfigError } from './config.ts';
import { claimRegionDirectory, readRegionPlaces, recordRegionPlaces } from './installation.ts';

let top: string;
let home: string;
let place: { code: string; directory: string };

beforeEach(async () => {
  top = await mkdtemp(join(tmpdir(), 'hd-'));
  home = join(top, 'home');
  await mkdir(home);
  place = { code: 'nvme', directory: join(top, 'disk', 'howdah') };
});
afterEach(() => rm(top, { recursive: true }));

const problem = async (work: Promise<unknown>): Promise<string> => {
  const error: unknown = await work.catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(ConfigError);
  return error instanceof Error ? error.message : '';
};

test('a new directory becomes the place of a region, and stays it', async () => {
  await claimRegionDirectory(home, place, false);
  await claimRegionDirectory(home, place, false);
  await claimRegionDirectory(home, place, true);
  expect(JSON.parse(await readFile(join(place.directory, 'region.json'), 'utf8'))).toEqual({
    code: 'nvme',
    home,
  });
});

test('a disk that is not mounted is refused while the region has services', async () => {
  expect(await problem(claimRegionDirectory(home, place, true))).toMatch(
    /^HOWDAH_REGIONS: .*disk\/howdah of nvme does not hold the data.*mount its disk/,
  );
  await mkdir(place.directory, { recursive: true });
  expect(await problem(claimRegionDirectory(home, place, true))).toContain('mount its disk');
});

test('a directory with something else in it is refused', async () => {
  await mkdir(join(place.directory, 'lost+found'), { recursive: true });
  await writeFile(join(place.directory, 'mine'), '');
  expect(await problem(claimRegionDirectory(home, place, false))).toContain('is not empty');
  await rm(join(place.directory, 'mine'));
  await claimRegionDirectory(home, place, false);
  const other = { ...place, code: 'other' };
  expect(await problem(claimRegionDirectory(home, other, false))).toContain(
    'holds the region nvme',
  );
});

test('a directory of another installation is refused, that of a moved home is not', async () => {
  await claimRegionDirectory(home, place, false);
  const second = join(top, 'second');
  await claimRegionDirectory(second, place, true);
  await recordRegionPlaces(home, []);
  await mkdir(second);
  await recordRegionPlaces(second, [place]);
  expect(await problem(claimRegionDirectory(home, place, false))).toContain(
    `is in use by the installation in ${second}`,
  );
});

test('a region that is not set any more keeps its place', async () => {
  const first = { code: 'local', directory: home };
  expect(await readRegionPlaces(home)).toEqual([first]);
  await recordRegionPlaces(home, [place]);
  const other = { code: 'slow', directory: '/mnt/slow' };
  await recordRegionPlaces(home, [other]);
  expect(await readRegionPlaces(home)).toEqual([first, place, other]);
  await recordRegionPlaces(home, [{ ...place, directory: '/mnt/moved' }]);
  expect(await readRegionPlaces(home)).toEqual([
    first,
    { code: 'nvme', directory: '/mnt/moved' },
    other,
  ]);
});
