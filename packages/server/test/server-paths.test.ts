/**
 * Files of services are damaged: their errors, warnings and reasons name no path of the machine.
 */
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { layoutOf } from './ha-load.ts';
import { install, type Installation } from './harness.ts';
import type { InstancePaths } from './probe.ts';
import { hurried } from './tuning.ts';
import { untilExpected } from './until.ts';

let cloud: Installation;

beforeAll(async () => {
  cloud = await install(hurried());
});
afterAll(async () => {
  expect(await cloud.destroy()).toEqual([]);
});

/** All texts about a service. The server log is PostgreSQL's own, and is left out. */
async function textsOf(id: string): Promise<string> {
  const answers = await Promise.all(
    ['', '/backups', '/backupStatus', '/members', '/metrics'].map((path) =>
      cloud.request('GET', `/services/${id}${path}`),
    ),
  );
  return JSON.stringify([...answers.map(({ body }) => body), await cloud.operations(id)]);
}

/** Replaces a directory by a file. */
async function replaceByFile(path: string): Promise<void> {
  await rename(path, `${path}.aside`);
  await writeFile(path, '');
}

async function restoreDirectory(path: string): Promise<void> {
  await rm(path);
  await rename(`${path}.aside`, path);
}

type Damage = {
  reason: RegExp;
  make: (paths: InstancePaths) => Promise<void>;
  undo: (paths: InstancePaths) => Promise<void>;
};
const controlFile = (paths: InstancePaths): string => join(paths.data, 'global', 'pg_control');

const DAMAGES: Record<string, Damage> = {
  'a directory that Howdah did not make': {
    reason: /was not made by Howdah/,
    make: async ({ root }) => {
      await rename(root, `${root}.aside`);
      await mkdir(root);
    },
    undo: async ({ root }) => {
      await rm(root, { recursive: true });
      await rename(`${root}.aside`, root);
    },
  },
  'a missing PG_VERSION': {
    reason: /PG_VERSION|data directory/,
    make: ({ data }) => rename(join(data, 'PG_VERSION'), join(data, 'PG_VERSION.aside')),
    undo: ({ data }) => rename(join(data, 'PG_VERSION.aside'), join(data, 'PG_VERSION')),
  },
  'a missing pg_control': {
    reason: /its data is missing/,
    make: (paths) => rename(controlFile(paths), `${controlFile(paths)}.aside`),
    undo: (paths) => rename(`${controlFile(paths)}.aside`, controlFile(paths)),
  },
  'a file in place of the configuration': {
    reason: /config/,
    make: ({ config }) => replaceByFile(config),
    undo: ({ config }) => restoreDirectory(config),
  },
};

test.each(Object.entries(DAMAGES))(
  '%s: the reason is shown without paths of the machine',
  async (_, { reason, make, undo }) => {
    const service = await cloud.create({ name: 'damaged', service_type: 'POSTGRES' });
    const id = service.service_id;
    const paths = layoutOf(cloud).service(id);
    await cloud.request('POST', `/services/${id}/stop`);
    await cloud.until(id, 'PAUSED');
    await make(paths);
    await cloud.request('POST', `/services/${id}/start`);
    await cloud.until(id, 'UNSTABLE');
    await untilExpected('the operation fails with the reason', async () =>
      expect((await cloud.operations(id))[0]?.error).toMatch(reason),
    );
    expect(await textsOf(id)).not.toContain(cloud.home);
    await undo(paths);
    await cloud.until(id, 'READY');
  },
);

test('an archive that cannot be read: the warning shows no paths of the machine', async () => {
  const { service_id: id } = await cloud.create({ name: 'archive', service_type: 'POSTGRES' });
  const { archive } = layoutOf(cloud).service(id);
  await replaceByFile(archive);
  await untilExpected('the service warns of its archive', async () =>
    expect((await cloud.get(id)).warnings?.map(({ code }) => code)).toContain('ARCHIVE'),
  );
  expect(await textsOf(id)).not.toContain(cloud.home);
  await restoreDirectory(archive);
});
