/** Users of the operating system that programs of ours run as. */
import { run } from './run.ts';

export type SystemUser = { name: string; uid: number; gid: number };

/** A system user that is there, or is made; null: it cannot be made. */
export async function ensureSystemUser(name: string): Promise<SystemUser | null> {
  const known = await findSystemUser(name);
  if (known !== null) return known;
  try {
    await run('useradd', [
      '--system',
      '--user-group',
      '--no-create-home',
      '--home-dir',
      '/nonexistent',
      '--shell',
      '/usr/sbin/nologin',
      name,
    ]);
  } catch (error) {
    process.emitWarning(`no system user ${name} could be made: ${String(error)}`);
  }
  return findSystemUser(name);
}

/** The first of these users that is there; null: none is. */
export async function findSystemUser(...names: readonly string[]): Promise<SystemUser | null> {
  for (const name of names) {
    const found = await lookUp(name);
    if (found !== null) return found;
  }
  return null;
}

async function lookUp(name: string): Promise<SystemUser | null> {
  try {
    const [uid, gid] = (await Promise.all([run('id', ['-u', name]), run('id', ['-g', name])])).map(
      Number,
    );
    return uid === undefined || gid === undefined ? null : { name, uid, gid };
  } catch {
    return null; // no such user
  }
}
