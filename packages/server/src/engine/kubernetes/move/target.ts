/** The data of other regions that a region on Kubernetes can take. */
import type { QueryResultRow } from 'pg';
import { Type } from 'typebox';
import { DATABASE_NAME } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import { newPassword } from '../../../lib/ids.ts';
import { scramVerifier } from '../../../lib/scram.ts';
import { EngineUnavailable } from '../../engine.ts';
import {
  COPY_ROLE,
  MOVE_ROLES,
  OPERATOR_ROLES,
  type ExtensionVersion,
  type MoveRoles,
  type Moves,
  type MoveTarget,
} from '../../moves.ts';
import { lookupStatements, POOLER_ROLE, POOLER_SCHEMA } from '../../pooler/lookup.ts';
import type { ServiceSpec } from '../../spec.ts';
import { MAX_STATEMENTS, READER_ROLE, TEMP_FILE_LIMIT } from '../../statements/session.ts';
import { KINDS } from '../api/kinds.ts';
import { examineCluster, isReady, NODE } from '../doctor.ts';
import { controlSecret, copySecret, namespaceOf } from '../names.ts';
import { GUARD_ROLE } from '../network/rules.ts';
import { controlManifest, copyManifest, namespaceManifest } from '../cluster/secrets.ts';
import { createMoveSource } from './source.ts';
import { openSession } from '../network/guard.ts';
import type { Region } from '../region/region.ts';
import { placesIn, writePassword } from '../cluster/objects.ts';
import { throwUnavailable } from '../api/errors.ts';

export function createMoves(region: Region): Moves {
  return {
    place: 'cluster',
    from: createMoveSource(region),
    to: {
      describe: () => describeTarget(region).catch(throwUnavailable),
      prepare: (spec, { verifier }) => prepare(region, spec, verifier).catch(throwUnavailable),
      position: (id) => readPosition(region, id),
      versions: (id) => readVersions(region, id),
      finish: async ({ id, projectId }) => {
        if (projectId === null) return;
        const place = placesIn(projectId)(KINDS.secret, copySecret(id));
        await region.kube.remove(place).catch(throwUnavailable);
      },
    },
  };
}

/** Contributed modules of PostgreSQL, which every image has, as far as tenants can have them. */
const MODULES: readonly string[] = [
  'bloom',
  'btree_gin',
  'btree_gist',
  'citext',
  'cube',
  'dict_int',
  'fuzzystrmatch',
  'hstore',
  'intarray',
  'isn',
  'lo',
  'ltree',
  'pg_freespacemap',
  'pg_stat_statements',
  'pg_trgm',
  'pg_visibility',
  'pgcrypto',
  'pgrowlocks',
  'pgstattuple',
  'plpgsql',
  'seg',
  'tablefunc',
  'tcn',
  'tsm_system_rows',
  'tsm_system_time',
  'unaccent',
  'uuid-ossp',
];

const STANDBY_ROLE = 'streaming_replica';
/** The names of these roles are ours in other regions too. */
const SHARED_ROLES = [READER_ROLE, POOLER_ROLE];
const RESERVED = [...MOVE_ROLES, ...SHARED_ROLES, ...OPERATOR_ROLES];

const MACHINE = Type.Intersect([
  NODE,
  Type.Object({
    status: Type.Object({ nodeInfo: Type.Object({ architecture: Type.String() }) }),
  }),
]);

async function describeTarget({
  kube,
  settings,
}: Region): Promise<Omit<MoveTarget, 'versions' | 'place'>> {
  const all = { kind: KINDS.node, namespace: null, name: null };
  const [{ items }, findings] = await Promise.all([
    kube.list(all, MACHINE),
    examineCluster(kube, settings.storageClass, `howdah-${settings.code}`),
  ]);
  const machines = items.filter(isReady).map(({ status }) => status.nodeInfo.architecture);
  return {
    architectures: [...new Set(machines)],
    modules: MODULES,
    extensions: settings.extensions,
    ownRoles: RESERVED,
    missing: findings.filter(({ state }) => state === 'missing').map(({ what }) => what),
  };
}

const PASSWORD = Type.Object({ data: Type.Object({ password: Type.String() }) });

/** Makes the secrets of a copy, once, and the SQL that gives the roles their passwords. */
async function prepare(
  region: Region,
  { id, projectId }: ServiceSpec,
  verifier: string | null,
): Promise<MoveRoles> {
  if (projectId === null) throw new Error(`the service ${id} has no project`);
  const place = placesIn(projectId);
  const { kube } = region;
  await kube.apply(
    { kind: KINDS.namespace, namespace: null, name: namespaceOf(projectId) },
    namespaceManifest(projectId),
  );
  // CloudNativePG sets it when the copy is promoted: nobody knows the one of a role without any.
  await writePassword(region, id, projectId, verifier ?? (await scramVerifier(newPassword())));
  const passwords: string[] = [];
  for (const [name, manifestOf] of [
    [copySecret(id), copyManifest],
    [controlSecret(id), controlManifest],
  ] as const) {
    const at = place(KINDS.secret, name);
    const found = await kube.get(at, PASSWORD);
    const password = found === null ? newPassword() : decoded(found.data.password);
    if (found === null) await kube.apply(at, manifestOf(id, projectId, password));
    passwords.push(await scramVerifier(password));
  }
  const [copy = '', control = ''] = passwords;
  return rolesOf(copy, control);
}

const decoded = (text: string): string => Buffer.from(text, 'base64').toString('utf8');

/**
 * Makes a role with its attributes at once: one that is found keeps them. `found` may change only
 * what gives no right to somebody else.
 */
const ensureRole = (name: string, made: string, found: string): string =>
  `do $body$ begin
     if exists (select from pg_roles where rolname = '${name}') then
       alter role ${name} ${found};
     else
       create role ${name} ${made};
     end if;
   end $body$`;

/** A user may have made one of these before its own role was dropped. */
const PLAIN =
  "nosuperuser nocreatedb nocreaterole noreplication password null valid until 'infinity'";
const READER = `login inherit bypassrls connection limit ${MAX_STATEMENTS} ${PLAIN}`;
const POOLER = `login nobypassrls connection limit -1 ${PLAIN}`;

/** Takes what somebody has set for a role, or granted to it, other than the superuser. */
const cleanRole = (name: string): string =>
  `do $body$
     declare granted record;
     begin
       alter role ${name} reset all;
       alter role ${name} in database ${DATABASE_NAME} reset all;
       for granted in
         select m.roleid::regrole as role, m.grantor::regrole as grantor from pg_auth_members m
         where m.member = '${name}'::regrole
           and not (m.roleid = 'pg_read_all_data'::regrole and m.grantor = 10)
       loop
         execute format('revoke %s from ${name} granted by %s cascade', granted.role,
           granted.grantor);
       end loop;
     end $body$`;

/**
 * A new Cluster has the same by the SQL of its initdb. Verifiers have no quotes.
 *
 * @param copy the verifier of the role that replicates @param control that of our own role
 */
export function rolesOf(copy: string, control: string): MoveRoles {
  const lookup = [`create schema if not exists ${POOLER_SCHEMA}`, ...lookupStatements()];
  const copies = `login password '${copy}'`;
  const controls = `login password '${control}'`;
  return {
    reserved: RESERVED,
    roles: [
      ensureRole(COPY_ROLE, `superuser ${copies}`, copies),
      ensureRole(STANDBY_ROLE, 'login replication', 'login'),
      `grant pg_checkpoint to ${STANDBY_ROLE}`,
      `grant connect on database postgres to ${STANDBY_ROLE}`,
      ensureRole(GUARD_ROLE, controls, controls),
      `grant connect on database postgres to ${GUARD_ROLE}`,
      `grant pg_checkpoint, pg_read_all_stats, pg_signal_backend to ${GUARD_ROLE}`,
      // Without a password: statements are refused until CloudNativePG has set it.
      ensureRole(READER_ROLE, READER, READER),
      ensureRole(POOLER_ROLE, POOLER, POOLER),
      ...SHARED_ROLES.map(cleanRole),
      `alter role ${READER_ROLE} set temp_file_limit = '${TEMP_FILE_LIMIT}'`,
      `grant connect on database ${DATABASE_NAME} to ${READER_ROLE}, ${POOLER_ROLE}`,
    ],
    databases: [
      { name: DATABASE_NAME, sql: lookup },
      { name: 'template1', sql: lookup },
    ],
  };
}

async function readPosition(region: Region, id: string) {
  // CloudNativePG has `always` in a replica cluster, and restarts a promoted server for `on`
  // (docs/cloudnativepg.md, fact 37).
  const [found] = await ask<{
    isFollowing: boolean;
    awaitsRestart: boolean;
    replayed: string | null;
  }>(
    region,
    id,
    `select pg_catalog.pg_is_in_recovery() as "isFollowing",
       pg_catalog.current_setting('archive_mode') = 'always' as "awaitsRestart",
       pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_last_wal_replay_lsn(), '0/0')::text as replayed`,
  );
  return {
    isFollowing: found?.isFollowing !== false,
    awaitsRestart: found?.awaitsRestart === true,
    replayed: BigInt(found?.replayed ?? 0),
    // The position is enough.
    hasShutdown: false,
  };
}

/** The image of a copy may have been set after that was made, and nobody has examined it. */
const readVersions = (region: Region, id: string): Promise<ExtensionVersion[]> =>
  ask(
    region,
    id,
    `select found.name::text as name, found.version
     from pg_catalog.pg_available_extension_versions() as found`,
  );

/** Asks the copy, as a role that it has from the service. @throws EngineUnavailable */
async function ask<Row extends QueryResultRow>(
  region: Region,
  id: string,
  sql: string,
): Promise<Row[]> {
  const client = await openSession(region, id);
  try {
    return (await client.query<Row>(sql)).rows;
  } catch (error) {
    const reason = messageOf(error);
    throw new EngineUnavailable(reason, { cause: error });
  } finally {
    client.connection.stream.destroy();
  }
}
