/**
 * Runs pgBackRest: without a configuration file, with all options in its environment, as a user
 * that can read and otherwise change nothing of the machine, and with a low priority.
 */
import { unescaped } from '../lib/mounts.ts';
import { spawn, type ChildProcess } from 'node:child_process';
import { chown, mkdtemp, open, readFile, rm, statfs, type FileHandle } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { repositoryOptions } from './options.ts';
import { problemOf } from './problem.ts';
import {
  RepositoryProblem,
  type BackupUser,
  type PgBackRest,
  type Repository,
} from './repository.ts';
import { ownCapabilities } from '../lib/kernel-capabilities.ts';

export type Call = {
  /** The command, and its arguments: nothing secret. */
  command: readonly [string, ...string[]];
  /** The purpose, as the end of "the repository cannot …". */
  asked: string;
  options?: Record<string, string>;
  input?: Buffer;
  signal?: AbortSignal;
  /** After this long its server counts as one that does not answer; none: it may take hours. */
  deadlineMs?: number;
  /** Whether it reads files of other users, which only root and pgBackRest's own user can. */
  readsAll?: boolean;
  /** Whether nobody waits for it, and nothing is lost without it. */
  isBackground?: boolean;
  /**
   * The directory that a restore writes. The backup names the files in it: one of another
   * installation may name files elsewhere, which cannot be written then.
   */
  writes?: string;
  /** The most that it may print. A repository of another installation may have anything. */
  maxBytes?: number;
  /** Codes of an ending that is no error, beside 0. */
  expected?: readonly number[];
  /** Called with each line that it logs. */
  onLine?: (line: string) => void;
};

export type Result = { code: number; stdout: Buffer };

const LOWEST_PRIORITY = ['nice', '-n', '19', 'ionice', '-c', '3'] as const;
/**
 * For what somebody waits for, as a restore, and for what is lost with the disk until it is sent,
 * as WAL. On a busy processor the lowest priority gets 1.5 % of the time of a process with the
 * usual one, this one 11 % (sched(7), weights of nice values), and twelve at a time leave the
 * servers most of it.
 */
const LOW_PRIORITY = ['nice', '-n', '10', 'ionice', '-c', '2', '-n', '7'] as const;
/** File descriptors of a child from here on are files of ours. */
const FIRST_FILE = 3;
/** Less than a WAL file. */
const LEAST_FREE_BYTES = 16e6;
/** The end of what it prints as errors. */
const ERRORS_MAX_BYTES = 16_384;

/**
 * Runs a command of pgBackRest to its end.
 *
 * @throws RepositoryProblem when it fails; what `signal` was aborted with
 */
export async function runPgBackRest(
  { program, user, ioTimeoutSeconds, isForeign }: PgBackRest,
  repository: Repository,
  call: Call,
): Promise<Result> {
  call.signal?.throwIfAborted();
  const { values, files } = repositoryOptions(repository);
  const opened: FileHandle[] = [];
  const lockPath = await mkdtemp(join(tmpdir(), 'howdah-repository-'));
  try {
    if (user !== null) await chown(lockPath, user.uid, user.gid);
    const named: Record<string, string> = {};
    for (const [option, text] of Object.entries(files)) {
      named[option] = `/proc/self/fd/${FIRST_FILE + opened.length}`;
      opened.push(await nameless(lockPath, text, user));
    }
    const env = environment(
      {
        ...values,
        ...named,
        'io-timeout': String(ioTimeoutSeconds),
        'lock-path': lockPath,
        'spool-path': lockPath,
        ...call.options,
      },
      call,
    );
    const readsAll =
      call.readsAll === true || (isForeign === true && repository.storage.type === 'path');
    const confined =
      isForeign === true && user !== null && call.writes !== undefined
        ? await confinedTo([call.writes, lockPath])
        : [];
    const command = enclosed(user, { ...call, readsAll }, [
      program,
      '--no-config',
      ...call.command,
    ]);
    const [first, ...words] = [...confined, ...command];
    const child = spawn(first ?? '', words, {
      cwd: '/',
      env,
      stdio: ['pipe', 'pipe', 'pipe', ...opened.map(({ fd }) => fd)],
    });
    const { code, stdout, stderr, isLate, isTooLong } = await ended(child, call);
    call.signal?.throwIfAborted();
    if (isTooLong)
      throw new RepositoryProblem(
        `the repository ${repository.name} cannot ${call.asked}: what it has is larger than ` +
          `anything that Howdah writes (${Math.round((call.maxBytes ?? 0) / 1e6)} MB)`,
      );
    if (isLate) throw problemOf(repository, call.asked, code, 'timeout');
    if (confined.length > 0 && /read-only file system/i.test(stderr))
      throw new RepositoryProblem(
        `the repository ${repository.name} has a backup with files outside of its data ` +
          'directory: it was not made by Howdah, and is not restored',
      );
    if (code !== 0 && !(call.expected ?? []).includes(code ?? -1))
      throw problemOf(repository, call.asked, code, `${await problemOfDisk(repository)}${stderr}`);
    return { code: code ?? 0, stdout };
  } finally {
    for (const file of opened) await file.close();
    await rm(lockPath, { recursive: true, force: true });
  }
}

/**
 * Why a directory cannot be used, as a first line of the output: pgBackRest reports missing files
 * on a full disk, and where the disk is not mounted.
 */
async function problemOfDisk({ storage }: Repository): Promise<string> {
  if (storage.type !== 'path') return '';
  const found = await statfs(storage.directory).catch(() => null);
  if (found === null) return 'permission denied\n';
  return found.bavail * found.bsize < LEAST_FREE_BYTES ? 'no space left\n' : '';
}

function environment(
  options: Readonly<Record<string, string>>,
  { onLine }: Call,
): Record<string, string> {
  const all = {
    'log-level-file': 'off',
    'log-level-stderr': 'error',
    'log-level-console': onLine === undefined ? 'off' : 'detail',
    'log-timestamp': 'n',
    ...options,
  };
  return {
    PATH: process.env['PATH'] ?? '/usr/bin:/bin',
    // The names of backups are times.
    TZ: 'UTC',
    ...Object.fromEntries(
      Object.entries(all).map(([name, value]) => [
        `PGBACKREST_${name.toUpperCase().replaceAll('-', '_')}`,
        value,
      ]),
    ),
  };
}

/** A file without a name, which the child opens by its descriptor: no other process can. */
async function nameless(
  directory: string,
  text: string,
  user: BackupUser | null,
): Promise<FileHandle> {
  const path = join(directory, 'file');
  const file = await open(path, 'wx+', 0o600);
  await rm(path);
  if (user !== null) await file.chown(user.uid, user.gid);
  await file.writeFile(text);
  return file;
}

/** Makes two directories mounts of their own, all other mounts read-only, and runs the rest. */
const CONFINE = [
  'mount -n --bind "$1" "$1" && mount -n --bind "$2" "$2" || exit; shift 2',
  // A mount below another one is not reachable, and cannot be changed.
  'while [ "$1" != -- ]; do',
  'mount -n -o remount,bind,ro "$1" 2>/dev/null || ! mountpoint -q "$1" || exit; shift; done',
  'shift; exec "$@"',
].join('\n');

/** The beginning of a command for root: nothing but these two directories can be written. */
async function confinedTo(writable: readonly [string, string]): Promise<string[]> {
  if (!ownCapabilities().has('CAP_SYS_ADMIN'))
    throw new RepositoryProblem(
      'data of another installation is restored in a mount namespace, which takes CAP_SYS_ADMIN: ' +
        'start the container with --cap-add SYS_ADMIN',
    );
  const mounts = (await readFile('/proc/self/mountinfo', 'utf8')).split('\n').slice(0, -1);
  const paths = mounts.map((line) => unescaped(line.split(' ')[4] ?? ''));
  const namespace = ['unshare', '--mount', '--propagation', 'private', '--'];
  return [...namespace, 'sh', '-c', CONFINE, 'sh', ...writable, ...new Set(paths), '--'];
}

/**
 * A command that has a low priority and ends with us. As root, also with another user, whose
 * only privilege is to read all files, if that.
 */
function enclosed(
  user: BackupUser | null,
  { readsAll = false, isBackground = false }: Call,
  command: readonly string[],
): string[] {
  const own = ownCapabilities();
  // A container has only the stronger one.
  const reading = own.has('CAP_DAC_READ_SEARCH') ? 'dac_read_search' : 'dac_override';
  const capabilities = readsAll ? `-all,+${reading}` : '-all';
  const sets = ['inh-caps', 'ambient-caps', ...(own.has('CAP_SETPCAP') ? ['bounding-set'] : [])];
  const as =
    user === null
      ? []
      : [
          '--reuid',
          String(user.uid),
          '--regid',
          String(user.gid),
          '--clear-groups',
          ...sets.map((set) => `--${set}=${capabilities}`),
        ];
  return [
    'setpriv',
    ...as,
    '--no-new-privs',
    '--pdeathsig',
    'KILL',
    '--',
    ...(isBackground ? LOWEST_PRIORITY : LOW_PRIORITY),
    ...command,
  ];
}

/** isLate: it was killed after its deadline. isTooLong: it printed more than it may. */
type Ended = {
  code: number | null;
  stdout: Buffer;
  stderr: string;
  isLate: boolean;
  isTooLong: boolean;
};

async function ended(
  child: ChildProcess,
  { input, signal, deadlineMs, maxBytes = Infinity, onLine }: Call,
): Promise<Ended> {
  const stdout: Buffer[] = [];
  let stderr = '';
  let [rest, printedBytes, isTooLong] = ['', 0, false];
  child.stdout?.on('data', (bytes: Buffer) => {
    printedBytes += bytes.length;
    isTooLong ||= printedBytes > maxBytes;
    if (isTooLong) return void child.kill('SIGKILL');
    if (onLine === undefined) return void stdout.push(bytes);
    const lines = (rest + bytes.toString('utf8')).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) onLine(line);
  });
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-ERRORS_MAX_BYTES);
  });
  // The program may end without reading its input.
  child.stdin?.on('error', () => undefined).end(input);
  const kill = (): void => void child.kill('SIGTERM');
  signal?.addEventListener('abort', kill, { once: true });
  let isLate = false;
  const end = (): void => {
    isLate = true;
    child.kill('SIGKILL');
  };
  const timer = deadlineMs === undefined ? null : setTimeout(end, deadlineMs);
  try {
    return await new Promise((resolve, reject) => {
      child.on('error', reject);
      child.on('close', (code) =>
        resolve({ code, stdout: Buffer.concat(stdout), stderr, isLate, isTooLong }),
      );
    });
  } finally {
    signal?.removeEventListener('abort', kill);
    if (timer !== null) clearTimeout(timer);
  }
}
