import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { install, type Installation } from '../../server/test/harness.ts';

const CLIENT = fileURLToPath(new URL('../', import.meta.url));
const ROOT = fileURLToPath(new URL('../../../', import.meta.url));

/** A project of somebody's, with the client as it is published. */
let project: string;
let installation: Installation;

beforeAll(async () => {
  project = await mkdtemp(join(tmpdir(), 'hd-client-'));
  const modules = join(project, 'node_modules');
  await mkdir(join(modules, '@howdah'), { recursive: true });
  expect(
    await run(
      process.execPath,
      [join(ROOT, 'tools/build/client.js'), join(modules, '@howdah/client')],
      ROOT,
      process.env,
    ),
  ).toEqual({
    code: 0,
    output: '',
  });
  // The packages that npm would install with it.
  for (const dependency of ['eventsource-parser', 'openapi-fetch', 'openapi-typescript-helpers'])
    await symlink(join(ROOT, 'node_modules', dependency), join(modules, dependency));
  await writeFile(join(project, 'package.json'), '{ "type": "module" }');
  installation = await install();
});
afterAll(async () => {
  await rm(project, { recursive: true, force: true });
  expect(await installation.destroy()).toEqual([]);
});

async function run(
  command: string,
  args: string[],
  cwd: string,
  env: NodeJS.ProcessEnv,
): Promise<{ code: number | null; output: string }> {
  const child = spawn(command, args, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] });
  const output: string[] = [];
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => output.push(text));
  await once(child, 'close');
  return { code: child.exitCode, output: output.join('') };
}

/** The output of each example of the README, in their order. */
const PRINTS = [
  { title: 'Connect, and list', output: /^$/ },
  {
    title: 'Create a service, and wait until it is ready',
    output: new RegExp(
      String.raw`^(QUEUED\n)?(CONFIGURING\n)?READY\n` +
        String.raw`postgres://tsdbadmin:[\w-]{32}@127\.0\.0\.1:\d+/tsdb\?sslmode=require\n$`,
    ),
  },
  {
    title: 'Fork it, try something, throw the fork away',
    output: /^experiment is a fork of [a-z0-9]{10}\ngone: null\n$/,
  },
  {
    title: 'Handle an error',
    output: new RegExp(
      '^400 INVALID_REQUEST cpu_millis, memory_gbs: found cpu_millis "700"; .*\n' +
        'request [0-9a-f-]{36}\n$',
    ),
  },
  { title: 'Try again, safely', output: /^operation \S+\n$/ },
];

test('the examples of the README do what they say, with the published package', async () => {
  const readme = await readFile(join(CLIENT, 'README.md'), 'utf8');
  const examples = [...readme.matchAll(/^## (.+?)$(?:(?!^## ).)*?^```js\n(.*?)^```$/gms)].map(
    ([, title, code]) => ({
      title,
      code: code ?? '',
    }),
  );
  expect(examples.map(({ title }) => title)).toEqual(PRINTS.map(({ title }) => title));
  for (const [index, { title, code }] of examples.entries()) {
    const file = join(project, `example-${index}.mjs`);
    await writeFile(file, code);
    const { code: exit, output } = await run(process.execPath, [file], project, installation.env);
    expect([title, exit, output]).toEqual([
      title,
      0,
      expect.stringMatching(PRINTS[index]?.output ?? /never/),
    ]);
  }
});

test('its types are those of the API', async () => {
  await writeFile(
    join(project, 'typed.ts'),
    `import { connect } from '@howdah/client/node';
     const { client, projectId } = await connect();
     const { data } = await client.GET('/projects/{project_id}/services', {
       params: { path: { project_id: projectId } },
     });
     const status: string | undefined = data?.[0]?.status;
     // @ts-expect-error there is no such status
     console.log(status, data?.[0]?.status === 'NONESUCH');
     // @ts-expect-error there is no such path
     await client.GET('/nonesuch');`,
  );
  const options = [
    '--noEmit',
    '--strict',
    '--module',
    'nodenext',
    '--target',
    'es2023',
    '--skipLibCheck',
    '--types',
    'node',
    '--typeRoots',
    join(ROOT, 'node_modules/@types'),
  ];
  expect(
    await run(join(ROOT, 'node_modules/.bin/tsc'), [...options, 'typed.ts'], project, process.env),
  ).toEqual({ code: 0, output: '' });
});
