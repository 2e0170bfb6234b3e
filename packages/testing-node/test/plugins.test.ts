/** The plugins of other languages: their own tests, and one of each against an installation. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectTo, type Installation } from '../../server/test/harness.ts';
import { share } from '../../server/test/shared.ts';
import { until } from '../../server/test/until.ts';

const PYTEST = ['python3', '-m', 'pytest', '-q', '-s', '-p', 'no:cacheprovider'] as const;
/**
 * `version`: succeeds where the runner is installed and new enough; `real`: the test against an
 * installation. Go, of 300 MB, is installed for the slow tests only.
 */
const PLUGINS = [
  {
    name: 'pytest-howdah',
    tags: [],
    version: ['python3', '-m', 'pytest', '--version'],
    own: PYTEST,
    real: [...PYTEST, 'tests/real.py'],
  },
  {
    name: 'howdahtest',
    tags: ['slow'],
    version: ['go', 'list', '-deps', '-test', './...'],
    own: ['go', 'test', './...'],
    real: ['go', 'test', '-tags=real', '-run=TestRowsOfTheServiceAreThere', '-v', '-count=1'],
  },
] as const;

let cloud: Installation;
let caches: string;
beforeAll(async () => {
  caches = await mkdtemp(join(tmpdir(), 'howdah-plugins-'));
  cloud = await share();
  const made = await cloud.create({ name: 'copied', service_type: 'POSTGRES' });
  const client = await connectTo(cloud, made, made.initial_password);
  await client.query('create table items as select generate_series(1, 100) as id');
  await client.end();
});
afterAll(async () => {
  await rm(caches, { recursive: true, force: true });
  expect(await cloud?.destroy()).toEqual([]);
});

const directoryOf = (plugin: string): string =>
  fileURLToPath(new URL(`../../../plugins/${plugin}`, import.meta.url));

/** Runs a command in the directory of a plugin, without traces there. */
async function run(plugin: string, command: readonly string[], env: Record<string, string> = {}) {
  const [program = '', ...words] = command;
  const child = spawn(program, words, {
    cwd: directoryOf(plugin),
    env: {
      ...process.env,
      PYTHONDONTWRITEBYTECODE: '1',
      PYTEST_DEBUG_TEMPROOT: caches,
      GOCACHE: caches,
      GOTOOLCHAIN: 'local',
      ...env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (said += text));
  await once(child, 'close');
  return { code: child.exitCode, said };
}

describe.each(PLUGINS)('$name', ({ name, tags, version: [program, ...words], own, real }) => {
  const isThere = spawnSync(program, words, { cwd: directoryOf(name) }).status === 0;
  const options = { tags: [...tags] };

  test.skipIf(!isThere)('its own tests pass', options, async () => {
    const { code, said } = await run(name, own);
    expect(code, said).toBe(0);
  });

  test.skipIf(!isThere)('a test has the data of a service, and returns it', options, async () => {
    const { code, said } = await run(name, real, {
      HD_API: cloud.apiUrl,
      HD_KEY: cloud.key,
      HD_PROJECT: cloud.projectId,
      HOWDAH_LEASE_FROM: 'copied',
    });
    expect(code, said).toBe(0);
    const id = /lease (\w+) has 100 rows/.exec(said)?.[1];
    await until('the lease is returned', async () => {
      return (await cloud.request('GET', `/leases/${id}`)).status === 404;
    });
  });
});
