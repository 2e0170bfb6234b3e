/**
 * Makes the data of a newer major version of PostgreSQL from the data of an older one: both run for
 * a while without clients, and the new server gets all that the old one has by a dump
 * (docs/decisions/0048-other-major-versions.md).
 */
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ADMIN_ROLE, DATABASE_NAME, type Addon } from '@howdah/contract';
import { escapeIdentifier, type Client } from 'pg';
import type { Rounds } from '../../../lib/rounds.ts';
import { copyPaths, discardCopy, killCopy, sweepCopies } from '../backup/copy.ts';
import { cloneTree } from '../host/clone.ts';
import type { InstancePaths } from '../host/layout.ts';
import type { Machine } from '../host/machine-record.ts';
import type { Owner } from '../host/users.ts';
import { rename } from '../host/root-files.ts';
import { assertSpaceFor, bytesBelow } from '../host/space.ts';
import { readControlFiles } from '../postgres/extension-files.ts';
import type { ControlFile } from '../../postgres/contents/control-file.ts';
import { judge, extensionsOf } from '../../../domain/postgres/extension-rules.ts';
import { createExtension } from '../../postgres/contents/extension-sql.ts';
import { MAINTENANCE_DATABASE } from '../../postgres/roles.ts';
import { writeSystemIdentifier } from '../../postgres/data/identity.ts';
import type { Installation } from '../postgres/installations.ts';
import { makeInstanceDirectories } from '../postgres/server.ts';
import {
  withSessionAs,
  withSuperuserSession,
  type Where,
} from '../../postgres/sessions/superuser.ts';
import type { Templates } from '../postgres/templates.ts';
import { dataOfExtensions, letCreate, restoreObjects, restoreSchemas, type Pair } from './dump.ts';
import {
  beginGlobals,
  finishGlobals,
  openForDump,
  readGlobals,
} from '../../postgres/contents/globals.ts';
import {
  COPY_PORT,
  startPrivateServer,
  stopPrivateServer,
  type PrivateSpec,
} from './private-server.ts';

/** Programs that copy data; packages for clients bring them, npm's PostgreSQL has none. */
const PROGRAMS = ['pg_dump', 'pg_restore'] as const;
/** Functions of a tenant that are evaluated may never end: the time follows from the data. */
const LEAST_DEADLINE_MS = 600_000;
const SLOWEST_BYTES_PER_SECOND = 1_500_000;
const GB = 1e9;
/** ANALYZE reads a part of each table. */
const ANALYZE_LIMIT_MS = 3_600_000;

/** @returns why an installation cannot take over the data of an older one; null: it can */
export function whyNotConverted(to: Installation, addons: readonly Addon[]): string | null {
  if (addons.includes('time-series'))
    return (
      'data of TimescaleDB cannot be copied into another major version: only a superuser can ' +
      'restore its catalog; create a service of the new version, and howdah import'
    );
  const missing = PROGRAMS.filter((name) => !existsSync(join(to.bin, name)));
  return missing.length === 0
    ? null
    : `${missing.join(' and ')} of PostgreSQL ${to.major} are needed, and ${to.name} has none: ` +
        `apt-get install postgresql-${to.major}, then restart Howdah`;
}

/** The data to make: of whom, by which PostgreSQL. */
type Conversion = {
  readonly machine: Machine;
  readonly templates: Templates;
  readonly rounds: Rounds;
  readonly spec: PrivateSpec;
  readonly owner: Owner | null;
  readonly from: Installation;
  readonly to: Installation;
  /** Ends the work; null: nothing does. */
  readonly signal: AbortSignal | null;
};

/**
 * Makes a data directory.
 *
 * @param makeOld makes the data of the older version in the directory that it gets
 * @param target the new data directory, which does not exist yet
 * @returns a line for the user
 * @throws Error with the reason of PostgreSQL when something cannot be restored
 */
export async function convert(
  conversion: Conversion,
  makeOld: (directory: string) => Promise<string>,
  target: string,
): Promise<string> {
  const { machine, rounds, spec, owner, from, to, signal } = conversion;
  const old = copyPaths(machine, `${spec.id}-old`);
  const fresh = copyPaths(machine, `${spec.id}-new`);
  const begunMs = Date.now();
  await sweepCopies(machine);
  await Promise.all([discardCopy(machine, old), discardCopy(machine, fresh)]);
  // A session in one of the servers gets an error.
  const interrupt = (): void =>
    void Promise.all([killCopy(machine, old), killCopy(machine, fresh)]).catch(() => undefined);
  signal?.addEventListener('abort', interrupt);
  try {
    for (const paths of [old, fresh]) await makeInstanceDirectories(owner, paths);
    const made = await makeOld(old.data);
    const bytes = await bytesBelow(old.data);
    await assertSpaceFor(bytes, machine.layout.scratch);
    const deadlineMs = LEAST_DEADLINE_MS + (bytes / SLOWEST_BYTES_PER_SECOND) * 1000;
    await cloneTemplate(conversion, fresh);
    await startPrivateServer(machine, owner, spec, old, from);
    await startPrivateServer(machine, owner, spec, fresh, to);
    const pair: Pair = { machine, owner, to, old, fresh, deadlineMs };
    signal?.throwIfAborted();
    const copied = await withinQuota(rounds, pair, spec.storageGb, () => copyAll(pair));
    await stopPrivateServer(machine, owner, fresh);
    await rename(fresh.data, target);
    return (
      `${made}; PostgreSQL ${from.version} to ${to.version}: ${copied} by a dump ` +
      `in ${Date.now() - begunMs} ms`
    );
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  } finally {
    signal?.removeEventListener('abort', interrupt);
    await discardCopy(machine, old);
    await discardCopy(machine, fresh);
  }
}

/** Ends the new server when it takes more of the disk than the service may. */
async function withinQuota<T>(
  rounds: Rounds,
  { machine, fresh }: Pair,
  storageGb: number,
  work: () => Promise<T>,
): Promise<T> {
  let isOver = false;
  const measure = async (): Promise<void> => {
    if ((await bytesBelow(fresh.data)) <= storageGb * GB) return;
    isOver = true;
    await killCopy(machine, fresh);
  };
  const round = rounds.every(
    'conversionQuotas',
    () => measure().catch(() => undefined), // the next measurement does what this one could not
  );
  round.startLater();
  try {
    return await work();
  } catch (error) {
    if (!isOver) throw error;
    throw new Error(
      `the copy takes more than its storage of ${storageGb} GB: give it more storage_gb`,
      { cause: error },
    );
  } finally {
    await round.close();
  }
}

async function cloneTemplate(
  { machine, templates, spec, owner, to }: Conversion,
  { data }: InstancePaths,
): Promise<void> {
  const template = await templates.ensure(to, extensionsOf(spec.addons));
  await cloneTree(template.data, data, machine, owner);
  await writeSystemIdentifier(data);
}

/** Copies roles and databases. @returns how many, for the user */
async function copyAll(pair: Pair): Promise<string> {
  const { old, fresh } = pair;
  // No tenant has the name.
  const creators = escapeIdentifier(`howdah_${randomBytes(8).toString('hex')}`);
  const globals = await withSuperuserSession(at(old, MAINTENANCE_DATABASE), async (client) => {
    const read = await readGlobals(client);
    await openForDump(client);
    return read;
  });
  const names = globals.databases.map(({ name }) => name);
  if (!names.includes(DATABASE_NAME))
    throw new Error(`it has no database ${DATABASE_NAME}, which a user dropped or renamed`);
  const inFresh = (work: (client: Client) => Promise<void>): Promise<void> =>
    withSuperuserSession(at(fresh, MAINTENANCE_DATABASE), work);
  await inFresh((client) => beginGlobals(client, globals, creators));
  const controls = await readControlFiles(pair.to);
  for (const name of names) await copyDatabase(pair, name, creators, controls);
  await inFresh((client) => finishGlobals(client, globals, creators));
  return `${names.length} databases and ${globals.roles.length + 1} roles`;
}

async function copyDatabase(
  pair: Pair,
  database: string,
  creators: string,
  controls: readonly ControlFile[],
): Promise<void> {
  const { old, fresh } = pair;
  const inOld = <T>(work: (client: Client) => Promise<T>): Promise<T> =>
    withSuperuserSession({ ...at(old, database), readOnly: true }, work);
  const inFresh = <T>(work: (client: Client) => Promise<T>): Promise<T> =>
    withSuperuserSession(at(fresh, database), work);
  const extensions = await inOld(readExtensions);
  const ofSuperuser = extensionsToCreate(extensions, controls, pair.to);
  const leftOut = await inOld(dataOfExtensions);
  await inFresh((client) => letCreate(client, creators, true));
  await restoreSchemas(pair, database);
  await createExtensions(fresh, database, ofSuperuser);
  await inFresh((client) => letCreate(client, creators, true));
  await restoreObjects(pair, database, leftOut);
  await inFresh((client) => letCreate(client, creators, false));
  const difference = describeDifference(await inOld(countObjects), await inFresh(countObjects));
  if (difference !== null) throw new Error(`database ${database}: ${difference}`);
  // As tsdbadmin: it evaluates expressions of indexes.
  const where = { ...at(fresh, database), limitMs: ANALYZE_LIMIT_MS };
  await withSessionAs(ADMIN_ROLE, where, async (client) => void (await client.query('analyze')));
}

type Created = { name: string; schema: string };

async function readExtensions(client: Client): Promise<Created[]> {
  const { rows } = await client.query<Created>(
    `select e.extname::text as name, n.nspname::text as schema
     from pg_extension e join pg_namespace n on n.oid = e.extnamespace order by e.oid`,
  );
  return rows;
}

/**
 * The extensions that the control plane has to create. tsdbadmin creates those that PostgreSQL
 * trusts, and those that need no superuser.
 *
 * @throws Error when one is not installed, or not allowed any more
 */
function extensionsToCreate(
  extensions: readonly Created[],
  controls: readonly ControlFile[],
  to: Installation,
): { control: ControlFile; schema: string }[] {
  return extensions.flatMap(({ name, schema }) => {
    const control = controls.find((one) => one.name === name);
    if (control === undefined)
      throw new Error(
        `the extension ${name} is not installed for PostgreSQL ${to.major}: ` +
          `howdah extension install ${name}`,
      );
    if (control.trusted || !control.superuser) return [];
    const { allowed, reason } = judge(control);
    if (!allowed) throw new Error(`the extension ${name}: ${reason}`);
    return [{ control, schema }];
  });
}
async function createExtensions(
  fresh: InstancePaths,
  database: string,
  extensions: readonly { control: ControlFile; schema: string }[],
): Promise<void> {
  for (const { control, schema } of extensions) {
    await createExtension({ paths: fresh, port: COPY_PORT, database }, control);
    await withSuperuserSession(at(fresh, database), async (client) => {
      const now = (await readExtensions(client)).find(({ name }) => name === control.name);
      if (now === undefined || now.schema === schema) return;
      const [name, into] = [control.name, schema].map((one) => escapeIdentifier(one));
      await client.query(`alter extension ${name} set schema ${into}`);
    });
  }
}

const at = (server: InstancePaths, database: string): Where => ({
  server,
  port: COPY_PORT,
  name: 'howdah conversion',
  database,
  limitMs: 600_000,
});

// Compares what two databases contain, by their catalogs.

/** How many objects there are of each kind. */
type Counts = ReadonlyMap<string, number>;

/** Not of extensions, whose versions differ, and none of PostgreSQL's own. */
const own = (catalog: string, namespace: string): string =>
  `exists (select from pg_namespace n where n.oid = ${namespace} and n.nspname !~ '^pg_'
     and n.nspname <> 'information_schema')
   and not exists (select from pg_depend d where d.classid = '${catalog}'::regclass
     and d.objid = o.oid and d.deptype = 'e')`;

const ofRelations = (catalog: string, relation: string, more: string): string =>
  `select '${catalog}' as kind, count(*)::int as number from ${catalog} o
   join pg_class c on c.oid = o.${relation}
   where exists (select from pg_namespace n where n.oid = c.relnamespace and n.nspname !~ '^pg_'
     and n.nspname <> 'information_schema') and ${more}`;

const QUERY = `select 'relations of kind ' || relkind::text as kind, count(*)::int as number
    from pg_class o where ${own('pg_class', 'o.relnamespace')} group by relkind
  union all select 'functions', count(*)::int from pg_proc o
    where ${own('pg_proc', 'o.pronamespace')}
  union all select 'types', count(*)::int from pg_type o
    where o.typtype in ('d', 'e', 'r') and ${own('pg_type', 'o.typnamespace')}
  union all ${ofRelations('pg_trigger', 'tgrelid', 'not tgisinternal')}
  union all ${ofRelations('pg_policy', 'polrelid', 'true')}
  union all ${ofRelations('pg_constraint', 'conrelid', "contype in ('c', 'f', 'p', 'u', 'x')")}
  union all select 'large objects', count(*)::int from pg_largeobject_metadata`;

/** Counts the objects of a database. */
async function countObjects(client: Client): Promise<Counts> {
  const { rows } = await client.query<{ kind: string; number: number }>(QUERY);
  return new Map(rows.map(({ kind, number }) => [kind, number]));
}

/** @returns what the second has not as the first; null: they agree */
export function describeDifference(before: Counts, after: Counts): string | null {
  const kinds = [...new Set([...before.keys(), ...after.keys()])];
  const differing = kinds.flatMap((kind) => {
    const [old, now] = [before.get(kind) ?? 0, after.get(kind) ?? 0];
    return old === now ? [] : [`${kind}: ${old} before, ${now} after`];
  });
  return differing.length === 0 ? null : differing.join('; ');
}
