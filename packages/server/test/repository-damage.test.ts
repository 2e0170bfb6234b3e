// @module-tag slow
/** A repository that has lost or damaged its newest backup: the one before it, and its WAL. */
import { open, readdir, rm, stat, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { takeSnapshot } from '../test-repositories/probe.ts';
import { findPgBackRest, ownerOf, whyNotServed } from './probe.ts';
import {
  cloud,
  context,
  execute,
  loseService,
  newDirectory,
  pathsOf,
  place,
  recoverService,
  setUp,
  shipAll,
  switchWal,
  tearDown,
} from './repository-cloud.ts';

const isServed = whyNotServed(await findPgBackRest(), 17) === null;

beforeAll(async () => {
  if (isServed) await setUp({ HOWDAH_SNAPSHOT_HOURS: '24' });
});
afterAll(async () => {
  if (isServed) await tearDown();
});

/** The files of a backup. */
async function filesOf(backup: string): Promise<string[]> {
  const entries = await readdir(backup, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name));
}

const isManifest = (file: string): boolean => /backup\.manifest(\.copy)?$/.test(file);

async function flipByte(file: string): Promise<void> {
  const opened = await open(file, 'r+');
  try {
    const position = Math.floor((await stat(file)).size / 2);
    const byte = Buffer.alloc(1);
    await opened.read(byte, 0, 1, position);
    byte[0] = ~(byte[0] ?? 0) & 0xff;
    await opened.write(byte, 0, 1, position);
  } finally {
    await opened.close();
  }
}

const cut = async (file: string): Promise<void> =>
  truncate(file, Math.floor((await stat(file)).size / 2));

async function toData(backup: string, work: (file: string) => Promise<void>): Promise<void> {
  const files = (await filesOf(backup)).filter((file) => !isManifest(file));
  expect(files).not.toEqual([]);
  for (const file of files) await work(file);
}

async function toManifests(backup: string, work: (file: string) => Promise<void>): Promise<void> {
  for (const file of (await filesOf(backup)).filter(isManifest)) await work(file);
}

test.runIf(isServed).each<[string, (backup: string) => Promise<void>]>([
  ['is missing', (backup) => rm(backup, { recursive: true })],
  ['has no data', (backup) => toData(backup, (file) => rm(file))],
  ['has damaged data', (backup) => toData(backup, flipByte)],
  ['has data that ends early', (backup) => toData(backup, cut)],
  ['has a damaged manifest', (backup) => toManifests(backup, flipByte)],
  ['has a manifest that ends early', (backup) => toManifests(backup, cut)],
])('a service comes back from an earlier backup where the newest %s', async (what, damage) => {
  const name = what.replaceAll(' ', '-');
  const repository = await newDirectory(name);
  const service = await cloud.create({ name, service_type: 'POSTGRES' });
  await execute(service, 'create table kept as select generate_series(1, 1000) as n');
  const { backups: first } = await shipAll(service, repository);
  await execute(service, 'insert into kept values (1001)');
  const paths = pathsOf(service);
  await takeSnapshot(context.machine, ownerOf(context.machine, paths), paths);
  const { backups } = await shipAll(service, repository);
  expect(backups.length).toBe(first.length + 1);
  await execute(service, 'insert into kept values (1002)');
  await switchWal(service);
  expect(await shipAll(service, repository)).toMatchObject({ problem: null });

  await damage(join(place, name, 'backup', service.service_id, backups[0]?.label ?? ''));
  await loseService(service);
  await recoverService(service, repository);
  expect(await readdir(paths.snapshots)).toContain(first[0]?.snapshot);
  expect(await readdir(paths.snapshots)).not.toContain(backups[0]?.snapshot);
  const counted = 'select count(*)::int as n, max(n) as last from kept';
  expect(await execute(service, counted)).toEqual([{ n: 1002, last: 1002 }]);
});
