/** The plugin of pytest (plugins/pytest-howdah): its own tests, and one against an installation. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo, type Installation } from '../../server/test/harness.ts';
import { share } from '../../server/test/shared.ts';
import { until } from '../../server/test/until.ts';

const PLUGIN = fileURLToPath(new URL('../../../plugins/pytest-howdah', import.meta.url));

const hasPytest = spawnSync('python3', ['-m', 'pytest', '--version']).status === 0;

let cloud: Installation;
beforeAll(async () => {
  cloud = await share();
});
afterAll(async () => expect(await cloud?.destroy()).toEqual([]));

async function pytest(words: readonly string[], env: Record<string, string>) {
  const options = ['-m', 'pytest', '-q', '-s', '-p', 'no:cacheprovider'];
  const child = spawn('python3', [...options, ...words], {
    cwd: PLUGIN,
    env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (said += text));
  await once(child, 'close');
  return { code: child.exitCode, said };
}

test.skipIf(!hasPytest)('the tests of the plugin pass', async () => {
  const { code, said } = await pytest([], {});
  expect(code, said).toBe(0);
});

test.skipIf(!hasPytest)('a test of pytest has a database, which is returned', async () => {
  const made = await cloud.create({ name: 'pytested', service_type: 'POSTGRES' });
  const client = await connectTo(cloud, made, made.initial_password);
  await client.query('create table items as select generate_series(1, 100) as id');
  await client.end();
  const { apiUrl, key, projectId } = cloud;
  const { code, said } = await pytest(['tests/real.py', '--howdah-from', 'pytested'], {
    HD_API: apiUrl,
    HD_KEY: key,
    HD_PROJECT: projectId,
  });
  expect(code, said).toBe(0);
  const id = /lease (\w+) has 100 rows/.exec(said)?.[1];
  await until('the lease is returned', async () => {
    return (await cloud.request('GET', `/leases/${id}`)).status === 404;
  });
});
