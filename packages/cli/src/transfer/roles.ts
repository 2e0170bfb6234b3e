/** Says which roles of an import need a password or a right from the user. */
import { note, paintNote } from '../output.ts';
import { listed } from './steps.ts';

const SHOWN = 10;

/**
 * Lists the roles that were made without a password. The source's is not copied: it may be an md5
 * hash, with which no role can log in to a service.
 */
export function noteRoles(roles: readonly string[]): void {
  if (roles.length === 0) return;
  note(
    `${paintNote.yellow('note')} ${roles.length} roles were made without password and login, ` +
      `also those whose password was an md5 hash: ${listed(roles)}. For each that logs in:`,
  );
  for (const role of roles.slice(0, SHOWN))
    note(`  alter role ${quotedRole(role)} login password '…';`);
}

const quotedRole = (name: string): string =>
  /^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
