/**
 * Conditions on rows of `services`, by name. A name says which services are meant; the columns are
 * its definition.
 */
import { type Expression, type ExpressionBuilder, sql, type SqlBool } from 'kysely';
import type { Tables } from './tables.ts';

type Predicate = (where: ExpressionBuilder<Tables, 'services'>) => Expression<SqlBool>;

/** Belongs to a region. */
export const isIn =
  (region: string): Predicate =>
  (where) =>
    where('region_code', '=', region);

/** Belongs to a project: neither a spare nor a service whose data is being removed for good. */
export const isOwned: Predicate = (where) => where('project_id', 'is not', null);

/** Kept for the next create, and not for the next lease. */
export const isSpare: Predicate = (where) =>
  where.and([
    where('project_id', 'is', null),
    where('deleting', '=', false),
    where.not(isForLeases(where)),
  ]);

/** A fork for leases, taken or not. */
export const isForLeases: Predicate = () =>
  sql<SqlBool>`exists (select from leased_servers l where l.service_id = services.id)`;

/**
 * A lease of less than a day has no backups: nobody restores it. A lease that is extended beyond
 * that, or that was given no end, has backups.
 */
export const isPassing: Predicate = (where) =>
  where.and([
    isForLeases(where),
    sql<SqlBool>`coalesce(services.expires_at <= services.created + interval '1 day', false)`,
  ]);

/** Not a read replica set. */
export const isNoReplicaSet: Predicate = (where) => where('parent_id', 'is', null);

/** Users see it in the list of services. */
export const isListed: Predicate = (where) =>
  where.and([isOwned(where), where('deleted_at', 'is', null), isNoReplicaSet(where)]);

/** Users see it, and its server must accept connections now. */
export const mustRun: Predicate = (where) =>
  where.and([isListed(where), where('status', 'in', ['READY', 'UNSTABLE'])]);

/** The service's server runs or will run: spares and read replica sets too. */
export const isMeantToRun: Predicate = (where) =>
  where.and([where('power', '=', 'running'), where('deleting', '=', false)]);

/** Not asleep: the server is not stopped until the next client comes. */
export const isAwake: Predicate = (where) => where('suspended_at', 'is', null);

/** Deleted, with data on this machine that can be restored or is being removed. */
export const isDeleted: Predicate = (where) =>
  where.and([
    where('deleted_at', 'is not', null),
    isNoReplicaSet(where),
    where.not(isOnlyInRepository(where)),
    where.not(isOnlyCopy(where)),
  ]);

/** Removed, but for the copy of an aborted move, whose cluster may never answer. */
const isOnlyCopy: Predicate = () =>
  sql<SqlBool>`coalesce(
    move ->> 'state' = 'abort' and (move ->> 'removed')::boolean, false)`;

/** Deleted, and nothing of it is left on this machine. */
export const isOnlyInRepository: Predicate = () =>
  sql<SqlBool>`coalesce((kept ->> 'isRemoved')::boolean, false)`;
