/** Starts programs that outlive the control plane: PostgreSQL servers, PgBouncer and HAProxy. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { ownCapabilities } from '../../../lib/kernel-capabilities.ts';
import type { Owner } from './users.ts';
import { open, rm } from './root-files.ts';
import { openMounts, type Enclosure } from './sandbox.ts';

export type Detached = {
  command: readonly string[];
  /** The user it runs as, without any privilege; null: our own. */
  owner: Owner | null;
  cwd: string;
  pidFile: string;
  /**
   * The process's output is appended to this file, which may be truncated meanwhile; earlier output
   * is removed.
   */
  log: string;
  /** A command that runs the enclosure in turn, such as `nsenter …`. */
  within: readonly string[];
  /** The part of the machine that it sees. */
  enclosure: Enclosure;
  /** Variables of its environment beside the usual ones. */
  environment?: Readonly<Record<string, string>>;
  /** An open file for its standard input; none: nothing. */
  input?: number;
};

/**
 * Writes its own pid into the pid file, then becomes the program: a running program can always be
 * found. On a full disk the pid cannot be written, and nothing is started. Arguments: pid file, the
 * command.
 */
const LAUNCH_SCRIPT = `umask 077
echo $$ > "$1" || exit 1; shift
exec "$@"`;

/** Starts a program, detached. Returns at once; its pid file, its log and /proc show its state. */
export async function launchDetached({
  command,
  owner,
  cwd,
  pidFile,
  log,
  within,
  enclosure,
  environment,
  input,
}: Detached): Promise<void> {
  await rm(log, { force: true });
  const output = await open(log, 'a', 0o600);
  const mounts = enclosure.mounts === null ? null : await openMounts(enclosure.mounts);
  try {
    const words = [
      '-c',
      LAUNCH_SCRIPT,
      'howdah',
      pidFile,
      ...within,
      ...enclosure.within,
      ...privileges(owner),
      ...command,
    ];
    const child = spawn('/bin/sh', words, {
      cwd,
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LANG: 'C.UTF-8', ...environment },
      detached: true,
      stdio: [input ?? 'ignore', output.fd, output.fd, ...(mounts === null ? [] : [mounts.fd])],
    });
    await Promise.race([
      once(child, 'spawn'),
      once(child, 'error').then(([error]) => Promise.reject(error)),
    ]);
    child.unref();
  } finally {
    await mounts?.close();
    await output.close();
  }
}

/** The command by which a program becomes a user, without any privilege. */
export function privileges(owner: Owner | null): string[] {
  if (owner === null) return [];
  return [
    'setpriv',
    `--reuid=${owner.uid}`,
    `--regid=${owner.gid}`,
    '--clear-groups',
    '--no-new-privs',
    '--inh-caps=-all',
    // Without CAP_SETPCAP it stays; a program without privileges cannot gain them from it.
    ...(ownCapabilities().has('CAP_SETPCAP') ? ['--bounding-set=-all'] : []),
    '--',
  ];
}
