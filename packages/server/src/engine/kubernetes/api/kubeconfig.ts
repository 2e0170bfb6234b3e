/**
 * The address of a cluster and the credentials for it, from a kubeconfig file or from the service
 * account of the pod that the control plane runs in.
 * Format: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Type, type Static } from 'typebox';
import { Value } from 'typebox/value';
import { parse } from 'yaml';

/** How a cluster is reached. */
export type Connection = Readonly<{
  server: URL;
  /** PEM of the authorities that sign its certificate; null: those that Node.js trusts. */
  authorityPem: string | null;
  /** The name in its certificate, where that is not the host of `server`. */
  serverName: string | null;
  credential: Credential;
}>;

export type Credential =
  | Readonly<{ kind: 'certificate'; certificatePem: string; keyPem: string }>
  /** `read` for each request: the token of a service account is renewed in its file. */
  | Readonly<{ kind: 'token'; read: () => Promise<string> }>;

/** A kubeconfig cannot be used; the message says why and what to do. */
export class BadKubeconfig extends Error {}

const CLUSTER = Type.Object({
  server: Type.String(),
  'certificate-authority-data': Type.Optional(Type.String()),
  'insecure-skip-tls-verify': Type.Optional(Type.Boolean()),
  'tls-server-name': Type.Optional(Type.String()),
});
const USER = Type.Object({
  'client-certificate-data': Type.Optional(Type.String()),
  'client-key-data': Type.Optional(Type.String()),
  token: Type.Optional(Type.String()),
});
const KUBECONFIG = Type.Object({
  'current-context': Type.Optional(Type.String()),
  clusters: Type.Array(Type.Object({ name: Type.String(), cluster: CLUSTER })),
  users: Type.Array(Type.Object({ name: Type.String(), user: USER })),
  contexts: Type.Array(
    Type.Object({
      name: Type.String(),
      context: Type.Object({ cluster: Type.String(), user: Type.String() }),
    }),
  ),
});

/**
 * @param text a kubeconfig, as YAML or JSON, with its certificates and keys in it
 * @param context null: its current context
 * @throws BadKubeconfig
 */
export function readKubeconfig(text: string, context: string | null): Connection {
  const config = parseKubeconfig(text);
  const wanted = context ?? config['current-context'];
  if (wanted === undefined)
    throw new BadKubeconfig('it has no current context; name one with --context');
  const found = config.contexts.find(({ name }) => name === wanted)?.context;
  if (found === undefined) {
    const names = config.contexts.map(({ name }) => name).join(', ');
    throw new BadKubeconfig(`it has no context ${wanted}; it has: ${names}`);
  }
  const cluster = config.clusters.find(({ name }) => name === found.cluster)?.cluster;
  const user = config.users.find(({ name }) => name === found.user)?.user;
  if (cluster === undefined || user === undefined)
    throw new BadKubeconfig(`it lacks the cluster or the user of its context ${wanted}`);
  return {
    ...connectionOf(cluster),
    credential: credentialOf(user, found.user),
  };
}

function parseKubeconfig(text: string): Static<typeof KUBECONFIG> {
  let parsed: unknown;
  try {
    // Aliases are of no use in it, and a file of a few lines with them could be gigabytes.
    parsed = parse(text, { maxAliasCount: 0 });
  } catch {
    throw new BadKubeconfig('it is neither YAML nor JSON');
  }
  if (Value.Check(KUBECONFIG, parsed)) return parsed;
  const [first] = Value.Errors(KUBECONFIG, parsed);
  const where = first?.instancePath.replaceAll('/', '.').slice(1) ?? '';
  throw new BadKubeconfig(`it is no kubeconfig: ${where === '' ? 'it' : where} ${first?.message}`);
}

function connectionOf(cluster: Static<typeof CLUSTER>): Omit<Connection, 'credential'> {
  const server = URL.canParse(cluster.server) ? new URL(cluster.server) : null;
  if (server?.protocol !== 'https:')
    throw new BadKubeconfig('the address of its cluster must begin with https://');
  if (cluster['insecure-skip-tls-verify'] === true)
    throw new BadKubeconfig(
      'it skips the check of the certificate; put the authority into certificate-authority-data',
    );
  const authority = cluster['certificate-authority-data'];
  return {
    server,
    authorityPem: authority === undefined ? null : fromBase64(authority),
    serverName: cluster['tls-server-name'] ?? null,
  };
}

function credentialOf(user: Static<typeof USER>, name: string): Credential {
  const { token } = user;
  if (token !== undefined) return { kind: 'token', read: async () => token };
  const certificate = user['client-certificate-data'];
  const key = user['client-key-data'];
  if (certificate === undefined || key === undefined)
    throw new BadKubeconfig(
      `its user ${name} has neither a token nor a certificate in it; programs and files are not ` +
        'used: make a file for one context by kubectl config view --minify --flatten --raw',
    );
  return { kind: 'certificate', certificatePem: fromBase64(certificate), keyPem: fromBase64(key) };
}

const fromBase64 = (text: string): string => Buffer.from(text, 'base64').toString('utf8');

/** Where Kubernetes puts the service account of a pod. */
const ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount';

/** The cluster that the control plane runs in. @throws BadKubeconfig outside of one */
export async function readServiceAccount(
  environment: NodeJS.ProcessEnv = process.env,
): Promise<Connection> {
  const host = environment['KUBERNETES_SERVICE_HOST'];
  const port = environment['KUBERNETES_SERVICE_PORT'];
  if (host === undefined || port === undefined)
    throw new BadKubeconfig('Howdah does not run in a cluster here; give a kubeconfig');
  return {
    server: new URL(`https://${host.includes(':') ? `[${host}]` : host}:${port}`),
    authorityPem: await readFile(join(ACCOUNT, 'ca.crt'), 'utf8'),
    serverName: null,
    credential: { kind: 'token', read: () => readFile(join(ACCOUNT, 'token'), 'utf8') },
  };
}
