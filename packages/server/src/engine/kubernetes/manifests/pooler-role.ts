/**
 * The role of a pooler in its server. CloudNativePG keeps it as the Cluster has it
 * (docs/cloudnativepg.md, fact 23). The function that it calls is made with the data: it shows
 * verifiers, so it belongs to the superuser.
 */
import { DATABASE_NAME } from '@howdah/contract';
import { lookupStatements, POOLER_ROLE, POOLER_SCHEMA } from '../../pooler/lookup.ts';
import { clusterName, poolerName } from './names.ts';

/** The role as a Cluster has it: it may log in, and nothing else. */
export function poolerRole(id: string): object {
  return {
    name: POOLER_ROLE,
    ensure: 'present',
    login: true,
    passwordSecret: { name: poolerName(clusterName(id)) },
  };
}

/** SQL that a superuser runs once in a new server: no user can make a role of this name then. */
export const POOLER_SQL: readonly string[] = [`create role ${POOLER_ROLE}`];
/** The same in the database that all others are copies of: users may make theirs again. */
export const POOLER_TEMPLATE_SQL: readonly string[] = [
  `do $body$
begin
  -- The name of the schema is reserved.
  perform set_config('allow_system_table_mods', 'on', true);
  create schema ${POOLER_SCHEMA};
  ${lookupStatements().join(';\n  ')};
end $body$`,
];
/** The same in the database of users, which its owner may close to everybody else. */
export const POOLER_DATABASE_SQL: readonly string[] = [
  `grant connect on database ${DATABASE_NAME} to ${POOLER_ROLE}`,
];
