/** Programs that print credentials, as scripts that run. */
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { findProcess } from '../../../lib/processes.ts';
import {
  issueServerCertificate,
  openCertificateAuthority,
  type ServerCertificate,
} from '../../../lib/tls.ts';
import { createPlugin, NoCredentials, type Plugin } from './credential-plugin.ts';

const API_VERSION = 'client.authentication.k8s.io/v1';

let directory: string;
let certificate: ServerCertificate;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'hd-'));
  const authority = await openCertificateAuthority(directory);
  certificate = await issueServerCertificate(authority, ['client']);
});
afterAll(() => rm(directory, { recursive: true }));
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllEnvs();
});

let scripts = 0;

/** A program of these lines. Each of its runs adds a line to `runs`. */
async function program(...lines: string[]) {
  scripts += 1;
  const path = join(directory, `plugin-${scripts}`);
  const runs = `${path}.runs`;
  await writeFile(runs, '');
  await writeFile(path, ['#!/bin/sh', `echo run >> ${runs}`, ...lines].join('\n'));
  await chmod(path, 0o755);
  return { path, runs: async () => (await readFile(runs, 'utf8')).split('\n').length - 1 };
}

const plugin = (path: string, change: Partial<Plugin> = {}): Plugin => ({
  path,
  args: [],
  env: {},
  asked: { apiVersion: API_VERSION, kind: 'ExecCredential', spec: { interactive: false } },
  installHint: null,
  ...change,
});

const credential = (status: object): string =>
  JSON.stringify({ apiVersion: API_VERSION, kind: 'ExecCredential', status });

const print = (text: string): string => `cat <<'END'\n${text}\nEND`;

const inSeconds = (seconds: number): string => new Date(Date.now() + seconds * 1000).toISOString();

test('a token is read once, by all requests that wait for it', async () => {
  const { path, runs } = await program('sleep 0.1', print(credential({ token: 't' })));
  const { read } = createPlugin(plugin(path));
  const read8 = await Promise.all(Array.from({ length: 8 }, read));
  expect(read8.map(({ token }) => token)).toEqual(Array.from({ length: 8 }, () => 't'));
  expect((await read()).certificate).toBeNull();
  expect(await runs()).toBe(1);
});

test('a certificate with its key is read', async () => {
  const { certificatePem, keyPem } = certificate;
  const pair = { clientCertificateData: certificatePem, clientKeyData: keyPem };
  const { path } = await program(print(credential(pair)));
  expect(await createPlugin(plugin(path)).read()).toEqual({
    token: null,
    certificate: { certificatePem, keyPem },
    expiresMs: Infinity,
  });
});

test('a program gets its arguments, its variables and what is asked of it', async () => {
  vi.stubEnv('HOWDAH_DATABASE_URL', 'postgres://secret');
  vi.stubEnv('AWS_PROFILE', 'own');
  const { path } = await program(
    `env > ${directory}/env`,
    `echo "$@" > ${directory}/args`,
    print(credential({ token: 't' })),
  );
  await createPlugin(plugin(path, { args: ['get', 'a b; c'], env: { CLUSTER: 'mine' } })).read();
  expect(await readFile(`${directory}/args`, 'utf8')).toBe('get a b; c\n');
  const env = await readFile(`${directory}/env`, 'utf8');
  expect(env).toContain('CLUSTER=mine\n');
  expect(env).toContain('AWS_PROFILE=own\n');
  expect(env).toContain(
    `KUBERNETES_EXEC_INFO={"apiVersion":"${API_VERSION}","kind":"ExecCredential",` +
      '"spec":{"interactive":false}}\n',
  );
  expect(env).not.toContain('secret');
});

describe('expiry', () => {
  test('a token is renewed before it expires, and nobody waits for that', async () => {
    const { path, runs } = await program(
      `echo '${credential({ token: 'N', expirationTimestamp: 'T' })}' |` +
        ` sed "s/N/$(wc -l < ${directory}/plugin-${scripts + 1}.runs)/;` +
        ` s/\\"T\\"/\\"$(cat ${directory}/until)\\"/"`,
    );
    await writeFile(`${directory}/until`, inSeconds(900));
    const { read } = createPlugin(plugin(path));
    expect((await read()).token).toBe('1');
    vi.useFakeTimers({ toFake: ['Date'] });
    vi.setSystemTime(Date.now() + 830_000);
    expect((await read()).token).toBe('1');
    expect(await runs()).toBe(1);
    // 50 s before the end of the first.
    vi.setSystemTime(Date.now() + 20_000);
    await writeFile(`${directory}/until`, inSeconds(900));
    expect((await read()).token).toBe('1');
    await vi.waitFor(async () => expect((await read()).token).toBe('2'));
    // Expired: it is not used any more.
    vi.setSystemTime(Date.now() + 1_000_000);
    await writeFile(`${directory}/until`, inSeconds(900));
    expect((await read()).token).toBe('3');
    expect(await runs()).toBe(3);
  });

  test('refused credentials are replaced, at most once in ten seconds', async () => {
    const { path, runs } = await program(print(credential({ token: 't' })));
    const { read, refuse } = createPlugin(plugin(path));
    const first = await read();
    refuse(first);
    expect(await read()).toBe(first);
    vi.useFakeTimers({ toFake: ['Date'] });
    vi.setSystemTime(Date.now() + 11_000);
    refuse(first);
    const second = await read();
    expect(second).not.toBe(first);
    // Those of before: another request has had them replaced.
    vi.setSystemTime(Date.now() + 11_000);
    refuse(first);
    expect(await read()).toBe(second);
    expect(await runs()).toBe(2);
  });
});

describe('a program that fails', () => {
  test('is named with the end of what it complains about, and not run at once again', async () => {
    const { path, runs } = await program(
      'echo SECRET',
      "printf 'first\\n\\033[31mUnable to locate credentials\\n' >&2",
      'exit 255',
    );
    const { read } = createPlugin(plugin(path));
    await expect(read()).rejects.toThrow(NoCredentials);
    const error: unknown = await read().catch((thrown: unknown) => thrown);
    expect(String(error)).toBe(
      `Error: ${path} ended with code 255: first |  [31mUnable to locate credentials`,
    );
    expect(await runs()).toBe(1);
    vi.useFakeTimers({ toFake: ['Date'] });
    vi.setSystemTime(Date.now() + 11_000);
    await expect(read()).rejects.toThrow('code 255');
    expect(await runs()).toBe(2);
  });

  test('is killed with its children when it hangs', async () => {
    const { path } = await program(`sleep 300 &`, `echo $! > ${directory}/child`, 'wait');
    const { read } = createPlugin(plugin(path), 1000);
    await expect(read()).rejects.toThrow(`${path} does not end within 1 s`);
    const child = Number(await readFile(`${directory}/child`, 'utf8'));
    expect(child).toBeGreaterThan(0);
    await vi.waitFor(async () => expect(await findProcess(child)).toBeNull());
  });

  test('is killed when its output has no end', async () => {
    const { path } = await program('yes');
    await expect(createPlugin(plugin(path)).read()).rejects.toThrow(
      `${path} prints more than 1048576 bytes`,
    );
  });

  test('that is missing comes with the hint of the kubeconfig', async () => {
    const missing = plugin('/nowhere/aws', { installHint: 'install it\nby hand' });
    await expect(createPlugin(missing).read()).rejects.toThrow(
      /^\/nowhere\/aws cannot be started: .*ENOENT; install it by hand$/,
    );
  });

  const SECRET = 'k8s-aws-v1.c2VjcmV0';
  test.each([
    ['nothing', '', /prints no JSON$/],
    ['no JSON', SECRET, /prints no JSON$/],
    ['other JSON', `"${SECRET}"`, /prints no ExecCredential: it must be object$/],
    ['another kind', `{"apiVersion":"${API_VERSION}","kind":"Secret","status":{}}`, /kind/],
    ['no status', `{"apiVersion":"${API_VERSION}","kind":"ExecCredential"}`, /status/],
    ['a number', credential({ token: 7 }), /status\.token/],
    ['no credentials', credential({}), /neither a token nor a certificate/],
    ['an empty token', credential({ token: '' }), /neither a token/],
    ['a certificate without a key', credential({ clientCertificateData: SECRET }), /neither/],
    ['a header', credential({ token: `${SECRET}\r\nx: y` }), /no header can have/],
    [
      'no pair',
      credential({ clientCertificateData: SECRET, clientKeyData: SECRET }),
      /not a pair in PEM/,
    ],
    ['no time', credential({ token: SECRET, expirationTimestamp: 'soon' }), /no time/],
    [
      'credentials of yesterday',
      credential({ token: SECRET, expirationTimestamp: '2020-01-01T00:00:00Z' }),
      /expired at 2020-01-01T00:00:00\.000Z: compare the clock/,
    ],
    [
      'another version',
      credential({ token: SECRET }).replace('/v1"', '/v1beta1"'),
      /not print the version that its kubeconfig asks for/,
    ],
  ])('prints %s', async (_, output, why) => {
    const { path } = await program(print(output));
    const error: unknown = await createPlugin(plugin(path))
      .read()
      .catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(NoCredentials);
    expect(String(error)).toMatch(why);
    expect(String(error)).not.toContain(SECRET);
  });
});
