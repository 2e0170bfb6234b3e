/**
 * The role of statements that users send through the API. CloudNativePG keeps it as the Cluster has
 * it (docs/cloudnativepg.md, fact 23). The properties that a managed role cannot have are made with
 * the data.
 */
import { DATABASE_NAME } from '@howdah/contract';
import { MAX_STATEMENTS, READER_ROLE, TEMP_FILE_LIMIT } from '../../statements/reader-role.ts';
import { REVOKE_WRITERS } from '../../statements/writers.ts';
import { readerSecret } from './names.ts';

/** Two more than statements: one ends another session from outside, one reads figures. */
const SESSIONS = MAX_STATEMENTS + 2;

/** The role as a Cluster has it. */
export function readerRole(id: string): object {
  return {
    name: READER_ROLE,
    ensure: 'present',
    login: true,
    bypassrls: true,
    connectionLimit: SESSIONS,
    inRoles: ['pg_read_all_data'],
    passwordSecret: { name: readerSecret(id) },
  };
}

/** SQL that a superuser runs once in a new server, before the database of users is made. */
export const READER_SQL: readonly string[] = [
  `create role ${READER_ROLE}`,
  `alter role ${READER_ROLE} set temp_file_limit = '${TEMP_FILE_LIMIT}'`,
];
/** The same in the database that all others are copies of. */
export const READER_TEMPLATE_SQL: readonly string[] = [REVOKE_WRITERS];
/** The same in the database of users, which its owner may close to everybody else. */
export const READER_DATABASE_SQL: readonly string[] = [
  `grant connect on database ${DATABASE_NAME} to ${READER_ROLE}`,
];
