/**
 * What a machine lacks when a server or a step fails for want of it, and the command that adds it.
 *
 * A log may hold texts of tenants, like the name of a database that somebody asked for. So a
 * message is recognised by its beginning, which is PostgreSQL's, and nothing of it gets into a
 * remedy.
 */

type Want = Readonly<{ lacks: string; remedy: string }>;

const MEMORY: Want = {
  lacks: 'the machine has too little memory for the size',
  remedy:
    'resize the service to a smaller size (howdah service resize NAME), or stop others; free -h ' +
    'shows the memory, and howdah doctor what the sizes take',
};
const HUGE_PAGES: Want = {
  lacks: 'the kernel has too few huge pages',
  remedy:
    'reserve more (sysctl -w vm.nr_hugepages=NUMBER), or set huge_pages to try; ' +
    'grep -i huge /proc/meminfo shows them',
};
const SHARED_MEMORY: Want = {
  lacks: 'the kernel allows too little shared memory',
  remedy:
    'raise its limits: sysctl -w kernel.shmmax=18446744073692774399 ' +
    'kernel.shmall=18446744073692774399, and in /etc/sysctl.d to keep them; ipcs -lm shows them',
};
const SHARED_FILES: Want = {
  lacks: '/dev/shm has too little space',
  remedy: 'enlarge it: mount -o remount,size=50% /dev/shm; a container: --shm-size; df -h shows it',
};
const SEMAPHORES: Want = {
  lacks: 'the kernel allows too few semaphores',
  remedy:
    'raise its limits: sysctl -w kernel.sem="250 256000 32 4096", and in /etc/sysctl.d to keep ' +
    'them; ipcs -ls shows them',
};
const DISK: Want = {
  lacks: 'the disk is full, or a quota of the file system is used up',
  remedy:
    'delete and purge services (howdah service purge NAME), or enlarge the disk; df -h and df -i ' +
    'show what is left',
};
const FILES: Want = {
  lacks: 'the process may open too few files',
  remedy:
    'raise the limit of the control plane, which its servers inherit: LimitNOFILE=65536 in its ' +
    'systemd unit, or ulimit -n 65536 before howdah up',
};
const ALL_FILES: Want = {
  lacks: 'the kernel has no more open files for anybody',
  remedy: 'raise its limit: sysctl -w fs.file-max=1000000; cat /proc/sys/fs/file-nr shows them',
};
const PROCESSES: Want = {
  lacks: 'the machine allows no more processes',
  remedy:
    'raise the limit of the control plane, which its servers inherit: TasksMax=infinity and ' +
    'LimitNPROC=infinity in its systemd unit, a larger --pids-limit of a container, or sysctl -w ' +
    'kernel.pid_max=4194304',
};
const KILLED: Want = {
  lacks: 'the kernel has killed it, most likely for want of memory',
  remedy:
    'resize the service (howdah service resize NAME), or stop others; journalctl -k --grep oom ' +
    'shows what was killed',
};

/** Messages of PostgreSQL by their beginning, and what the system said at their end. */
const MESSAGES: readonly (readonly [begin: RegExp, end: RegExp, want: Want])[] = [
  [/^could not map anonymous shared memory/, /Cannot allocate memory$/, MEMORY],
  [/^huge pages not supported/, /$/, HUGE_PAGES],
  [/^could not create shared memory segment/, /Cannot allocate memory$/, MEMORY],
  [
    /^could not create shared memory segment/,
    /(No space left on device|Invalid argument)$/,
    SHARED_MEMORY,
  ],
  [/^could not (resize|create) shared memory segment/, /No space left on device$/, SHARED_FILES],
  [/^could not create semaphores/, /(No space left on device|Invalid argument)$/, SEMAPHORES],
  [/^insufficient file descriptors available/, /$/, FILES],
  [/^could not fork|^could not create .* process/, /Resource temporarily unavailable$/, PROCESSES],
  [/^could not fork/, /Cannot allocate memory$/, MEMORY],
  [/^out of memory$/, /$/, MEMORY],
  [/^(startup|checkpointer|server) process \(PID \d+\) was terminated by signal 9/, /$/, KILLED],
  [/^could not /, /Too many open files in system$/, ALL_FILES],
  [/^could not /, /Too many open files$/, FILES],
  [/^could not /, /(No space left on device|Disk quota exceeded)$/, DISK],
];

/** Errors of the operating system at a step of the control plane. */
const ERRNOS: Readonly<Record<string, Want>> = {
  ENOSPC: DISK,
  EDQUOT: DISK,
  ENOMEM: MEMORY,
  EMFILE: FILES,
  ENFILE: ALL_FILES,
  EAGAIN: PROCESSES,
};

/** Longer messages are none of these. */
const MESSAGE_MAX_CHARACTERS = 1000;
const HEAD = /^.{0,200}?\b(?:FATAL|PANIC|LOG|ERROR): {1,4}/;

/**
 * What is lacking, by a message of PostgreSQL; null: something else is wrong.
 *
 * @param message with or without its severity before it; what follows the first line is not read
 * @param rest further lines of the same log
 */
export function wantOf(message: string, rest = ''): Want | null {
  const [line = ''] = message.slice(0, MESSAGE_MAX_CHARACTERS).split(/[\n;]/, 1);
  const text = line.replace(HEAD, '').trim();
  const found = MESSAGES.find(([begin, end]) => begin.test(text) && end.test(text));
  if (found === undefined) return null;
  const [, , want] = found;
  // With huge_pages = on the message is the same, and its hint names them.
  return want === MEMORY && /^HINT: .*\bhuge_pages = on\b/m.test(rest) ? HUGE_PAGES : want;
}

/** A message of PostgreSQL, with what is lacking and the command that adds it. */
export function withRemedy(message: string, rest = ''): string {
  return join(message, wantOf(message, rest));
}

/** The message of an error at a step, with the same. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const [code, syscall]: unknown[] = [Reflect.get(error, 'code'), Reflect.get(error, 'syscall')];
  const isErrno = typeof code === 'string' && typeof syscall === 'string';
  // A socket that is busy answers EAGAIN, and too many watches are ENOSPC.
  const isOther =
    (code === 'EAGAIN' && !String(syscall).startsWith('spawn')) || syscall === 'watch';
  const want = isErrno && !isOther ? ERRNOS[code] : undefined;
  return join(error.message, want ?? wantOf(error.message));
}

const join = (message: string, want: Want | null): string =>
  want === null ? message : `${message}. Cause: ${want.lacks}; remedy: ${want.remedy}`;
