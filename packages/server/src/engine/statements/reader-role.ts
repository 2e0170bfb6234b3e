/**
 * The role of statements that users send through the API: it may read all data and nothing else
 * (docs/decisions/0021-query.md).
 */

export const READER_ROLE = 'howdah_reader';

/** Statements of all callers together on one server: the other sessions are its users'. */
export const MAX_STATEMENTS = 10;

/** The disk space that sorts and joins may take. Only a superuser can set this limit. */
export const TEMP_FILE_LIMIT = '1GB';

/** Why statements cannot use the role. @param owner a user of the service that may become it */
export const whyTaken = (owner: string): string =>
  `it has a role ${READER_ROLE} that its user ${owner} made or was granted, and statements need ` +
  `the name: drop role ${READER_ROLE}`;
