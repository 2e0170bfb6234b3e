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
      'a program',
      kubeconfig({ user: { token: undefined, exec: { command: '/bin/sh' } } }),
      null,
      /--minify --flatten --raw/,
    ],
    ['aliases', `a: &a [1]\nb: *a\n${kubeconfig()}`, null, /neither YAML nor JSON/],
  ])('%s', (_, text, context, expected) => {
    expect(() => readKubeconfig(text, context)).toThrow(BadKubeconfig);
    expect(() => readKubeconfig(text, context)).toThrow(expected);
  });
});
