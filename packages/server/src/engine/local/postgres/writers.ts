/**
 * Functions of PostgreSQL that everybody may call and that write WAL or files in a transaction that
 * only reads. In a tenant's database they are tsdbadmin's alone, who cannot grant them: a grant to
 * a role that both it and the reader are members of could not be revoked
 * (docs/decisions/0021-query.md). `query.test.ts` classifies the others.
 */
import { ADMIN_ROLE } from '@howdah/contract';
import type { Client } from 'pg';

/** `pg_export_snapshot` makes a file with each call. */
export const WRITERS = ['pg_logical_emit_message', 'pg_export_snapshot'] as const;

const NAMES = `array[${WRITERS.map((name) => `'${name}'`).join(', ')}]::pg_catalog.name[]`;

/** In SQL, of a session of any search path: whether its role may call one of them. */
export const CAN_WRITE = `exists (
  select from pg_catalog.pg_proc p
  where p.pronamespace operator(pg_catalog.=) 'pg_catalog'::pg_catalog.regnamespace and p.proname operator(pg_catalog.=) any (${NAMES})
    and pg_catalog.has_function_privilege(p.oid, 'execute'))`;

/**
 * Takes the functions from everybody but tsdbadmin.
 *
 * @param client a session of ours in the tenant's database
 */
export async function revokeWriters(client: Client): Promise<void> {
  const { rows } = await client.query<{ signature: string }>(
    `select oid::regprocedure::text as signature from pg_proc where pronamespace = 'pg_catalog'::regnamespace and proname = any (${NAMES})`,
  );
  const statements = rows.flatMap(({ signature }) => [
    `revoke all on function ${signature} from public, ${ADMIN_ROLE} cascade`,
    `grant execute on function ${signature} to ${ADMIN_ROLE}`,
  ]);
  await client.query(
    `begin; set local allow_system_table_mods = on; ${[...statements, ...AS_IF_INITIAL].join('; ')}; commit`,
  );
}

/**
 * pg_dump shows what differs from the privileges that initdb made: these are as if it had, or each
 * dump would have errors when it is restored.
 */
const AS_IF_INITIAL = [
  `delete from pg_init_privs where classoid = 'pg_proc'::regclass
     and objoid in (select oid from pg_proc where pronamespace = 'pg_catalog'::regnamespace and proname = any (${NAMES}))`,
  `insert into pg_init_privs (objoid, classoid, objsubid, privtype, initprivs)
   select oid, 'pg_proc'::regclass, 0, 'i', proacl from pg_proc
   where pronamespace = 'pg_catalog'::regnamespace and proname = any (${NAMES})`,
];
