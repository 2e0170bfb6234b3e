/**
 * The address of a cluster and the credentials for it, from a kubeconfig file or from the service
 * account of the pod that the control plane runs in.
 * Format: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
 */
import { readFile } from 'node:fs/promises';
import { basename, isAbsolute, join } from 'node:path';
import { Type, type Static, type TSchema } from 'typebox';
import { Value } from 'typebox/value';
import { parse } from 'yaml';
import { createPlugin, type CredentialPlugin } from './credential-plugin.ts';

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
  | Readonly<{ kind: 'token'; read: () => Promise<string> }>
  | (Readonly<{ kind: 'program' }> & CredentialPlugin);

/** The paths of programs that a kubeconfig may name; null: none is run, as in a dry run. */
export type AllowedPrograms = readonly string[] | null;

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
  /** Checked for the user of the context alone. */
  exec: Type.Optional(Type.Unknown()),
});
const orNull = <T extends TSchema>(schema: T) => Type.Optional(Type.Union([schema, Type.Null()]));
const EXEC = Type.Object({
  apiVersion: Type.Enum([
    'client.authentication.k8s.io/v1',
    'client.authentication.k8s.io/v1beta1',
  ]),
  command: Type.String({ minLength: 1 }),
  args: orNull(Type.Array(Type.String())),
  env: orNull(Type.Array(Type.Object({ name: Type.String(), value: Type.String() }))),
  installHint: orNull(Type.String()),
  provideClusterInfo: orNull(Type.Boolean()),
  interactiveMode: orNull(Type.String()),
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
export function readKubeconfig(
  text: string,
  context: string | null,
  programs: AllowedPrograms = [],
): Connection {
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
    credential: credentialOf(user, cluster, { name: found.user, programs }),
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
  throw new BadKubeconfig(`it is no kubeconfig: ${whyNot(KUBECONFIG, parsed)}`);
}

function whyNot(schema: TSchema, value: unknown): string {
  const [first] = Value.Errors(schema, value);
  const where = first?.instancePath.replaceAll('/', '.').slice(1) ?? '';
  return `${where === '' ? 'it' : where} ${first?.message}`;
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

type Named = Readonly<{ name: string; programs: AllowedPrograms }>;

function credentialOf(
  user: Static<typeof USER>,
  cluster: Static<typeof CLUSTER>,
  { name, programs }: Named,
): Credential {
  const { token, exec } = user;
  if (token !== undefined) return { kind: 'token', read: async () => token };
  const certificate = user['client-certificate-data'];
  const key = user['client-key-data'];
  if (certificate !== undefined && key !== undefined)
    return {
      kind: 'certificate',
      certificatePem: fromBase64(certificate),
      keyPem: fromBase64(key),
    };
  if (exec !== undefined) return pluginOf(exec, cluster, { name, programs });
  throw new BadKubeconfig(
    `its user ${name} has neither a token, a certificate nor a program in it; files are not ` +
      'used: make a file for one context by kubectl config view --minify --flatten --raw',
  );
}

function pluginOf(
  exec: unknown,
  cluster: Static<typeof CLUSTER>,
  { name, programs }: Named,
): Credential {
  if (!Value.Check(EXEC, exec))
    throw new BadKubeconfig(`the program of its user ${name}: ${whyNot(EXEC, exec)}`);
  if (exec.interactiveMode === 'Always')
    throw new BadKubeconfig(
      `the program ${exec.command} of its user ${name} asks a person; use one that does not`,
    );
  const { apiVersion, command, args, installHint } = exec;
  const spec = {
    interactive: false,
    ...(exec.provideClusterInfo === true ? { cluster: sharedOf(cluster) } : {}),
  };
  const plugin = createPlugin({
    path: pathOf(command, { name, programs }),
    args: args ?? [],
    env: environmentIn(exec.env ?? []),
    asked: { apiVersion, kind: 'ExecCredential', spec },
    installHint: installHint ?? null,
  });
  return { kind: 'program', ...plugin };
}

/** The part of a cluster that a program is given. */
function sharedOf({ server, ...cluster }: Static<typeof CLUSTER>) {
  return {
    server,
    'tls-server-name': cluster['tls-server-name'],
    'certificate-authority-data': cluster['certificate-authority-data'],
  };
}

/**
 * The program that a command names: a path, or the last part of one that is allowed. Nothing is
 * searched for in PATH, since the right to add a region is not the right to run any program.
 */
function pathOf(command: string, { name, programs }: Named): string {
  if (programs === null)
    throw new BadKubeconfig(
      `its user ${name} gets credentials from the program ${command}, which a dry run does not run`,
    );
  const found = programs.find((path) => (isAbsolute(command) ? path : basename(path)) === command);
  if (found !== undefined) return found;
  throw new BadKubeconfig(
    `its user ${name} gets credentials from the program ${command}, which may not run on the ` +
      'machine of the control plane: add its absolute path to HOWDAH_CREDENTIAL_PROGRAMS there, ' +
      'or name a user with a token or a certificate (docs/kubernetes.md)',
  );
}

/**
 * Variables by which a program runs other code than its own: of the loader, of shells, of the
 * interpreters that programs of clouds are written for, and places of files that name programs.
 */
const RUNS_OTHER_CODE = new RegExp(
  '^(?:LD_.*|GCONV_PATH|PATH|IFS|PS4|ENV|BASH.*|SHELLOPTS|HOME|XDG_.*|AWS_.*_FILE|' +
    '(?:NODE|PYTHON|PERL|RUBY|_?JAVA|JDK|DOTNET|CLOUDSDK_PYTHON|HOWDAH).*)$',
);

function environmentIn(variables: readonly Readonly<{ name: string; value: string }>[]) {
  const refused = variables.find(
    ({ name }) => RUNS_OTHER_CODE.test(name) || !/^[A-Za-z_][A-Za-z0-9_]*$/.test(name),
  );
  if (refused !== undefined)
    throw new BadKubeconfig(
      `its program may not get the variable ${refused.name}, which can make it run other code; ` +
        'leave it out, or have a script of yours on the machine set it (docs/security.md)',
    );
  return Object.fromEntries(variables.map(({ name, value }) => [name, value]));
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
