/** `howdah checkout` in a real git repository, against a real installation. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { HOWDAH, type Installation } from '../../server/test/harness.ts';
import { share } from '../../server/test/shared.ts';
import { until } from '../../server/test/until.ts';

let cloud: Installation;
let directory: string;
beforeAll(async () => {
  cloud = await share();
});
beforeEach(async () => {
  directory = join(await mkdtemp(join(tmpdir(), 'hd-branches-')), 'a shop');
  await mkdir(directory);
  git('init', '--quiet', '--initial-branch', 'main');
  await writeFile(join(directory, '.gitignore'), '.env\n');
  git('add', '.');
  git('commit', '--quiet', '--message', 'Begin');
});
afterEach(async () => {
  await rm(join(directory, '..'), { recursive: true });
  await cloud.tidy();
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});

const WHO = ['-c', 'user.name=Ada', '-c', 'user.email=ada@example.com'];
const git = (...words: string[]): string => gitIn(directory, ...words);

function gitIn(cwd: string, ...words: string[]): string {
  const { status, stdout, stderr } = spawnSync('git', [...WHO, ...words], {
    cwd,
    env: { ...cloud.env, HOME: cwd, GIT_CONFIG_NOSYSTEM: '1' },
    encoding: 'utf8',
  });
  expect(status, stderr).toBe(0);
  return stdout + stderr;
}

async function checkout(...words: string[]) {
  const child = spawn(process.execPath, [HOWDAH, 'checkout', ...words], {
    cwd: directory,
    env: { ...cloud.env, HOME: directory, NO_COLOR: '1' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (said += text));
  await once(child, 'close');
  return { code: child.exitCode, said };
}

/** The variable of an .env file, which holds a string without expansions here. */
async function urlIn(top: string, variable = 'DATABASE_URL'): Promise<string> {
  const text = await readFile(join(top, '.env'), 'utf8');
  const [, value = ''] = new RegExp(`^${variable}="?([^"\n]*)"?$`, 'm').exec(text) ?? [];
  return value;
}

async function query(url: string, sql: string): Promise<unknown[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end();
  }
}

async function list() {
  const { data = [] } = await cloud.client.GET('/projects/{project_id}/services', {
    params: { path: { project_id: cloud.projectId } },
  });
  return data;
}

const names = async (): Promise<string[]> => (await list()).map(({ name }) => name).toSorted();

test('each branch has a fork of its own, which comes back and goes with the branch', async () => {
  await cloud.create({ name: 'shop', service_type: 'POSTGRES' });
  const first = await checkout();
  expect(first).toMatchObject({ code: 2, said: expect.stringContaining('--from') });

  await writeFile(join(directory, '.env'), 'PORT=3000\nDATABASE_URL=old\n');
  const begun = await checkout('--from', 'shop', '--ttl', '7d');
  expect(begun.code, begun.said).toBe(0);
  const main = await urlIn(directory);
  expect(await readFile(join(directory, '.env'), 'utf8')).toContain('PORT=3000\n');
  await query(main, 'create table carts (n int)');

  git('switch', '--quiet', '--create', 'feature/cart');
  expect((await checkout()).code).toBe(0);
  const feature = await urlIn(directory);
  expect(feature).not.toBe(main);
  // A fork is one of the service, and not of the fork of another branch.
  expect(await query(feature, "select to_regclass('carts') as carts")).toEqual([{ carts: null }]);
  expect(await names()).toEqual(['shop', 'shop@feature/cart', 'shop@main']);

  git('switch', '--quiet', 'main');
  expect((await checkout()).code).toBe(0);
  expect(await urlIn(directory)).toBe(main);
  expect(await names()).toHaveLength(3);

  git('branch', '--quiet', '--delete', '--force', 'feature/cart');
  const gone = await checkout();
  expect(gone.said).toContain('feature/cart is gone');
  await until('the fork is gone', async () => (await names()).length === 2);
  const secrets = await stat(join(directory, '.git', 'howdah', `${cloud.projectId}.json`));
  expect(secrets.mode & 0o077).toBe(0);
});

test('git calls it after a checkout, also in a worktree, and never fails by it', async () => {
  await cloud.create({ name: 'shop', service_type: 'POSTGRES' });
  const hooked = await checkout('--from', 'shop', '--hook', '--variable', 'TEST_URL');
  expect(hooked.code, hooked.said).toBe(0);
  // The name of a property that every object has.
  git('switch', '--quiet', '--create', 'constructor');
  expect(await names()).toContain('shop@constructor');
  git('switch', '--quiet', '--create', 'hooked');
  expect(await names()).toContain('shop@hooked');
  const own = join(directory, '..', 'beside');
  git('worktree', 'add', '--quiet', '-b', 'apart', own);
  const apart = await urlIn(own, 'TEST_URL');
  expect(await query(apart, 'select 1 as one')).toEqual([{ one: 1 }]);
  expect(apart).not.toBe(await urlIn(directory, 'TEST_URL'));

  // A fork that was deleted is made again, and without a control plane git goes on.
  const { service_id: id } = (await list()).find(({ name }) => name === 'shop@hooked') ?? {};
  await cloud.request('DELETE', `/services/${id}`);
  await until('the fork is gone', async () => !(await names()).includes('shop@hooked'));
  expect((await checkout()).said).toContain('another one is made');
  gitIn(own, 'switch', '--quiet', '--create', 'without', '--no-guess');

  const file = join(directory, '.git', 'hooks', 'post-checkout');
  await writeFile(file, '#!/bin/sh\nexit 0\n');
  await chmod(file, 0o755);
  const refused = await checkout('--hook');
  expect(refused).toMatchObject({ code: 5, said: expect.stringContaining('add this line') });
});

test('checkout without a repository or branch says so; a used name gets a number', async () => {
  await cloud.create({ name: 'shop', service_type: 'POSTGRES' });
  await cloud.create({ name: 'shop@main', service_type: 'POSTGRES' });
  const made = await checkout('--from', 'shop');
  expect(made.said).toContain('shop@main-2');
  expect(await checkout('nowhere')).toMatchObject({
    code: 3,
    said: expect.stringContaining('git switch -c nowhere'),
  });
  git('checkout', '--quiet', '--detach');
  expect(await checkout()).toMatchObject({ code: 2, said: expect.stringContaining('no branch') });
  const inside = directory;
  directory = join(directory, '..');
  expect(await checkout()).toMatchObject({ code: 2, said: expect.stringContaining('repository') });
  directory = inside;
});
