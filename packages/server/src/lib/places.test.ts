import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { findLost, rememberPlaces } from './places.ts';

async function home() {
  const root = await mkdtemp(join(tmpdir(), 'hd-places-'));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  const [data, file] = [join(root, 'home', 'data'), join(root, 'home', 'secrets.key')];
  await mkdir(data, { recursive: true });
  await writeFile(file, 'secret');
  return { root, data, file, places: await rememberPlaces([join(root, 'home'), data, file]) };
}

test('places that stay are not lost, whatever is written into them', async () => {
  const { data, places } = await home();
  await writeFile(join(data, 'more'), 'more');
  expect(await findLost(places)).toBeNull();
});

test('a directory that is removed, made again or moved away is lost', async () => {
  const removed = await home();
  await rm(removed.data, { recursive: true });
  expect((await findLost(removed.places))?.path).toBe(removed.data);
  const again = await home();
  await rename(again.data, join(again.root, 'aside'));
  await mkdir(again.data);
  expect((await findLost(again.places))?.path).toBe(again.data);
  const moved = await home();
  await rename(join(moved.root, 'home'), join(moved.root, 'elsewhere'));
  expect((await findLost(moved.places))?.path).toBe(join(moved.root, 'home'));
});

test('a directory of which only a part was removed is lost by a file in it', async () => {
  const { file, places } = await home();
  await rm(file);
  expect((await findLost(places))?.path).toBe(file);
});

test('a path that does not exist cannot be remembered', async () => {
  await expect(rememberPlaces(['/nowhere/at/all'])).rejects.toThrow('/nowhere/at/all is missing');
});
