/** Owners of extensions. */
import { ADMIN_ROLE } from '@howdah/contract';

/**
 * Makes tsdbadmin the owner of an extension, as of those that it creates itself: pg_dump comments
 * on extensions, and only the owner may. The objects of the extension remain the superuser's.
 */
export function ownExtensionStatements(name: string): string[] {
  return [
    `update pg_extension set extowner = '${ADMIN_ROLE}'::regrole where extname = '${name}'`,
    `insert into pg_shdepend (dbid, classid, objid, objsubid, refclassid, refobjid, deptype)
     select d.oid, 'pg_extension'::regclass, e.oid, 0, 'pg_authid'::regclass, e.extowner, 'o'
     from pg_extension e, pg_database d
     where e.extname = '${name}' and d.datname = current_database()`,
  ];
}
