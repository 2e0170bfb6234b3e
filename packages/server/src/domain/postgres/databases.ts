/**
 * The databases of a server, in SQL. A service has as many as its users make, and a rule for one of
 * them holds for all.
 */

/**
 * The connection limit of a database whose removal was interrupted ([PG] DROP DATABASE): nobody can
 * connect to it any more.
 */
export const REMOVED_LIMIT = -2;

/** The databases of the server itself: no user owns them, and sessions of ours work in them. */
export const SYSTEM_DATABASES: readonly string[] = ['postgres', 'template0', 'template1'];

/**
 * In SQL of any search path: whether a database is one of users.
 *
 * @param alias of `pg_database` or `pg_stat_database`
 */
export const isOfUsers = (alias: string): string =>
  `${alias}.datname operator(pg_catalog.<>)
     all ('{${SYSTEM_DATABASES.join(',')}}'::pg_catalog.name[])`;

/** In SQL: the names of all databases that a session can be in, as `name`. */
export const OPEN_DATABASES = `select datname::text as name from pg_catalog.pg_database
  where datallowconn and datconnlimit <> ${REMOVED_LIMIT} order by datname`;
