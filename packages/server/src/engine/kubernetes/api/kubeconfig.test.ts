import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { BadKubeconfig, readKubeconfig } from './kubeconfig.ts';

const base64 = (text: string): string => Buffer.from(text).toString('base64');

function kubeconfig(change: { cluster?: object; user?: object } = {}): string {
  return JSON.stringify({
    apiVersion: 'v1',
    'current-context': 'here',
    contexts: [{ name: 'here', context: { cluster: 'c', user: 'u', namespace: 'default' } }],
    clusters: [
      {
        name: 'c',
        cluster: {
          server: 'https://10.0.0.1:6443',
          'certificate-authority-data': base64('authority'),
          ...change.cluster,
        },
      },
    ],
    users: [{ name: 'u', user: { token: 'secret', ...change.user } }],
  });
}

test('a file with a token is read, as JSON and as YAML', async () => {
  const json = readKubeconfig(kubeconfig(), null);
  expect(json.server.href).toBe('https://10.0.0.1:6443/');
  expect(json.authorityPem).toBe('authority');
  expect(json.credential.kind === 'token' && (await json.credential.read())).toBe('secret');
  const yaml = `
current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://example.com"}}]
users:
- name: u
  user:
    client-certificate-data: ${base64('certificate')}
    client-key-data: ${base64('key')}
`;
  expect(readKubeconfig(yaml, 'here')).toMatchObject({
    authorityPem: null,
    credential: { kind: 'certificate', certificatePem: 'certificate', keyPem: 'key' },
  });
});

describe('is refused with what to do', () => {
  test.each([
    ['no YAML', '{', null, /neither YAML nor JSON/],
    ['no kubeconfig', '{"clusters": 1}', null, /no kubeconfig/],
    ['another context', kubeconfig(), 'there', /no context there; it has: here/],
    ['without TLS', kubeconfig({ cluster: { server: 'http://a' } }), null, /https/],
    ['no address', kubeconfig({ cluster: { server: 'x' } }), null, /https/],
    [
      'without a check',
      kubeconfig({ cluster: { 'insecure-skip-tls-verify': true } }),
      null,
      /certificate-authority-data/,
    ],
    [
      'neither token, certificate nor program',
      kubeconfig({ user: { token: undefined, 'client-key': '/etc/key' } }),
      null,
      /--minify --flatten --raw/,
    ],
    ['aliases', `a: &a [1]\nb: *a\n${kubeconfig()}`, null, /neither YAML nor JSON/],
  ])('%s', (_, text, context, expected) => {
    expect(() => readKubeconfig(text, context)).toThrow(BadKubeconfig);
    expect(() => readKubeconfig(text, context)).toThrow(expected);
  });
});

describe('a program that prints credentials', () => {
  const AWS = {
    apiVersion: 'client.authentication.k8s.io/v1beta1',
    command: 'aws',
    args: ['eks', 'get-token', '--cluster-name', 'mine'],
    env: null,
    provideClusterInfo: false,
  };
  const withProgram = (change: object = {}): string =>
    kubeconfig({ user: { token: undefined, exec: { ...AWS, ...change } } });
  const ALLOWED = ['/usr/local/bin/aws'];

  test('runs with the arguments of the kubeconfig, and gets its cluster', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'hd-'));
    const path = join(directory, 'get-token');
    const body = '{"apiVersion":"%s","kind":"ExecCredential","status":{"token":"%s"}}';
    await writeFile(
      path,
      `#!/bin/sh\necho "$KUBERNETES_EXEC_INFO" > ${directory}/info\n` +
        `printf '${body}' ${AWS.apiVersion} "$NAME-$1"\n`,
    );
    await chmod(path, 0o755);
    try {
      const { credential } = readKubeconfig(
        withProgram({
          command: 'get-token',
          args: ['first'],
          env: [{ name: 'NAME', value: 'mine' }],
          provideClusterInfo: true,
          interactiveMode: 'IfAvailable',
        }),
        null,
        ['/usr/bin/other', path],
      );
      if (credential.kind !== 'program') throw new Error(credential.kind);
      expect((await credential.read()).token).toBe('mine-first');
      expect(JSON.parse(await readFile(join(directory, 'info'), 'utf8'))).toEqual({
        apiVersion: AWS.apiVersion,
        kind: 'ExecCredential',
        spec: {
          interactive: false,
          cluster: {
            server: 'https://10.0.0.1:6443',
            'certificate-authority-data': base64('authority'),
          },
        },
      });
    } finally {
      await rm(directory, { recursive: true });
    }
  });

  test.each(['aws', '/usr/local/bin/aws'])(
    'may be named by its name or its path: %s',
    (command) => {
      const { credential } = readKubeconfig(withProgram({ command }), null, ALLOWED);
      expect(credential.kind).toBe('program');
    },
  );

  test('that another user has is of no interest', () => {
    const config = JSON.parse(kubeconfig());
    config.users.push({ name: 'other', user: { exec: 'nonsense' } });
    expect(readKubeconfig(JSON.stringify(config), null).credential.kind).toBe('token');
  });

  test.each([
    ['that is not allowed', withProgram(), [], /aws, which may not run .* HOWDAH_CREDENTIAL_PROG/],
    ['in another directory', withProgram({ command: '/tmp/aws' }), ALLOWED, /may not run/],
    ['by a relative path', withProgram({ command: './aws' }), ALLOWED, /may not run/],
    ['in a dry run', withProgram(), null, /which a dry run does not run/],
    ['that asks a person', withProgram({ interactiveMode: 'Always' }), ALLOWED, /asks a person/],
    ['by an old version', withProgram({ apiVersion: 'x/v1alpha1' }), ALLOWED, /apiVersion must/],
    ['without a command', withProgram({ command: undefined }), ALLOWED, /command/],
    ...['LD_PRELOAD', 'PATH', 'BASH_ENV', 'A=B', 'BASH_FUNC_aws%%', 'NODE_OPTIONS', 'PYTHONPATH']
      .concat(['SHELLOPTS', 'PS4', 'AWS_CONFIG_FILE', 'HOME', 'JAVA_TOOL_OPTIONS'])
      .map(
        (name) =>
          [
            `with the variable ${name}`,
            withProgram({ env: [{ name, value: 'x' }] }),
            ALLOWED,
            /may not get the variable/,
          ] as const,
      ),
  ] as const)('%s is refused', (_, text, programs, expected) => {
    expect(() => readKubeconfig(text, null, programs)).toThrow(BadKubeconfig);
    expect(() => readKubeconfig(text, null, programs)).toThrow(expected);
  });
});
