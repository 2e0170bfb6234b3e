/**
 * Managed roles, as the instance manager of CloudNativePG keeps them (docs/cloudnativepg.md, fact
 * 23). It compares them with the catalog again and again; the double writes a role when it or its
 * password changes.
 */
import { Type, type Static } from 'typebox';
import type { Api } from './api.ts';
import { clusterPath, currentPrimary, pathIn, type Cluster, type ManagedRole } from './cluster.ts';
import type { Seen, Tools } from './status.ts';

const PASSWORD = Type.Object({
  metadata: Type.Object({ resourceVersion: Type.String() }),
  data: Type.Object({ username: Type.String(), password: Type.String() }),
});

/** Writes the roles that have changed, on the primary. */
export async function applyRoles(
  tools: Tools,
  { cluster, servers, roleSecrets }: Seen,
): Promise<void> {
  const { roles = [] } = cluster.spec.managed;
  const known = cluster.status?.managedRolesStatus?.passwordStatus ?? {};
  const changed = roles.filter(
    ({ name, passwordSecret }) =>
      known[name]?.resourceVersion !== roleSecrets.get(passwordSecret.name),
  );
  const primary = servers.find(({ metadata }) => metadata.name === currentPrimary(cluster));
  if (changed.length === 0 || primary === undefined) return;
  const written = { ...known };
  for (const role of changed) {
    const secret = await passwordOf(tools.api, cluster, role);
    await tools.exec(primary, scriptOf(role, decoded(secret.data.password)));
    written[role.name] = { resourceVersion: secret.metadata.resourceVersion };
  }
  const status = {
    managedRolesStatus: {
      byStatus: { reconciled: roles.map(({ name }) => name) },
      passwordStatus: written,
    },
  };
  const { resourceVersion } = cluster.metadata;
  await tools.api.mergeVersion(`${clusterPath(cluster)}/status`, resourceVersion, { status });
}

async function passwordOf(
  api: Api,
  { metadata: { namespace } }: Cluster,
  { name, passwordSecret }: ManagedRole,
): Promise<Static<typeof PASSWORD>> {
  const secret = await api.read(pathIn(namespace, 'secrets', passwordSecret.name), PASSWORD);
  if (decoded(secret.data.username) !== name)
    throw new Error(`the secret ${passwordSecret.name} is not that of the role ${name}`);
  return secret;
}

const decoded = (text: string): string => Buffer.from(text, 'base64').toString('utf8');
const literal = (text: string): string => `'${text.replaceAll("'", "''")}'`;

/** A script of the shell. Attributes that a role leaves out have the defaults of PostgreSQL. */
function scriptOf(role: ManagedRole, password: string): string {
  const has = (isOn: boolean | undefined, attribute: string): string =>
    isOn === true ? attribute : `no${attribute}`;
  const { name, connectionLimit = -1, inRoles = [] } = role;
  const sql = [
    // Without a wait for standbys, which may be gone.
    'set log_statement = none; set synchronous_commit = local;',
    `select 'create role ${name}' where not exists`,
    `  (select from pg_roles where rolname = ${literal(name)}) \\gexec`,
    `alter role ${name} ${has(role.login, 'login')} ${has(role.bypassrls, 'bypassrls')} inherit`,
    '  nosuperuser nocreatedb nocreaterole noreplication',
    `  connection limit ${connectionLimit} password ${literal(password)};`,
    ...inRoles.map((group) => `grant ${group} to ${name};`),
  ].join('\n');
  return (
    'psql --no-psqlrc --host=/tmp --username=postgres --set=ON_ERROR_STOP=1 ' +
    `<<'END'\n${sql}\nEND`
  );
}
