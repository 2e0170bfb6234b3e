/**
 * Loaded before the control plane (`NODE_OPTIONS=--import …/crash-at.mjs`): sees each effect that
 * it has on the world, before and after, and faults at one of them. The product knows nothing of
 * it.
 *
 * Effects are changes below HOWDAH_HOME, in our cgroups and of networks, processes started and
 * signalled, commits of the metadata database and statements to services that change something.
 * Each has a name that is the same in every run: "rename services/new.new → services/new".
 *
 * CRASH_AT is a directory. `plan.json` in it says what to do and is read at every effect; without
 * one nothing happens. The names of the effects go to `trace`, a line each. The first to create the
 * file `injected` decides: this process, that it injects the fault; the driver (crash.ts) that it
 * no longer does.
 *
 * @typedef {{
 *   roles: Record<string, string>,
 *   first?: true,
 *   at: null | {
 *     effect: string, nth: number, when: 'before' | 'during' | 'after', delayMs: number,
 *     fault: 'kill' | 'hold' | 'lose' | { server: string },
 *   },
 * }} Plan roles: what to call services by id; one that is missing is "new", and what concerns
 * "other" ones is left out. first: of a first start, to which belongs what is made ahead. delayMs:
 * during means so long after it began. kill: this process. hold: that effect (before it) until the
 * file `release` is there. lose: the answer to that statement (after it), with its connection.
 * server: the role of the service whose PostgreSQL is killed, or "store".
 */
import childProcess from 'node:child_process';
import fs, {
  appendFileSync,
  existsSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  writeFileSync,
} from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { Socket } from 'node:net';
import { join } from 'node:path';

const { CRASH_AT: directory, HOWDAH_HOME: home } = process.env;
const kill = process.kill.bind(process);

/** @type {Plan | null} */
let plan = null;
let planText = '';
let injected = false;
/** @type {Map<string, number>} */
const counts = new Map();

/**
 * Called in the middle of what the control plane does: one that failed would leave a statement half
 * sent, and its transaction open for ever.
 */
function readPlan() {
  let text = '';
  try {
    text = readFileSync(join(directory, 'plan.json'), 'utf8');
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
  }
  if (text === planText) return;
  planText = text;
  plan = text === '' ? null : JSON.parse(text);
  injected = false;
  counts.clear();
}

// ── names
// ─────────────────────────────────────────────────────────────────────────────────────────────────

const ID = /^[a-z0-9]{10}$/;

/**
 * The ids that stand for themselves in paths: directories below `services`, `trash` and `scratch`,
 * and our cgroups.
 */
const PLACES = [
  /^(services\/)([a-z0-9]{10})/,
  /^(trash\/)([a-z0-9]{10})(-[0-9a-f]{8})?/,
  /^(cgroup\/)([a-z0-9]{10})/,
  /^(scratch\/)([a-z0-9]{10})/,
];

/** A path through an open directory, with the name under which it was opened. */
function pathOf(path) {
  const text = String(path);
  const [, opened, rest = ''] = /^(\/proc\/self\/fd\/\d+)(\/.*)?$/.exec(text) ?? [];
  if (opened === undefined) return text;
  try {
    return `${readlinkSync(opened)}${rest}`;
  } catch {
    return text; // closed already
  }
}

/** The name of a path, or null when it is none of ours. */
function nameOf(path) {
  const text = pathOf(path);
  const top = [home, dataDirectory()].find(
    (candidate) => candidate !== null && text.startsWith(`${candidate}/`),
  );
  let name =
    top === undefined
      ? /^\/sys\/fs\/cgroup\/.*howdah-[0-9a-f]{8}(?=\/)/.test(text)
        ? text.replace(/^.*howdah-[0-9a-f]{8}/, 'cgroup')
        : null
      : text.slice(top.length + 1);
  if (name === null) return null;
  name = name.replace(/^data\//, '');
  // Templates and their clones are made whenever there is time: they belong to no operation.
  if (name.startsWith('precloned/') || (name.startsWith('templates/') && plan?.first !== true))
    return null;
  for (const place of PLACES) {
    const [, before, id] = place.exec(name) ?? [];
    if (id === undefined) continue;
    const role = plan?.roles[id] ?? 'new';
    if (role === 'other') return null;
    name = name.replace(place, `${before}${role}`);
  }
  return name
    .replace(/[0-9]{8}T[0-9]{9}Z/g, 'TIME')
    .replace(/\b[0-9A-F]{24}\b/g, 'WAL')
    .replace(/^postgres\/.+\/.+/, 'postgres/*')
    .replace(/(?<=\/aside\/)[a-z0-9]{10}/g, 'UPGRADE')
    .replace(/\.probe-\w+/, '.probe');
}

/** @type {string | null} */
let knownData = null;
/** The real data directory: some homes have a link to it. */
function dataDirectory() {
  if (knownData === null && existsSync(join(home, 'data')))
    knownData = realpathSync(join(home, 'data'));
  return knownData;
}

/** Files of a cluster are many and alike. */
function alike(name) {
  return (
    name?.replace(
      // Files below a data directory, but those that the control plane writes.
      new RegExp(
        String.raw`(?<=(?:^|/)data(?:\.new)?/)` +
          String.raw`(?!postgresql\.auto\.conf|recovery\.signal|backup_label|pg_wal/WAL).+`,
      ),
      '*',
    ) ?? null
  );
}

// ── striking
// ─────────────────────────────────────────────────────────────────────────────────────────────────

/** Notes an effect. @returns what to fault at it with, or null: nothing */
function note(name) {
  if (plan === null) return null; // disarmed since
  appendFileSync(join(directory, 'trace'), `${name}\n`);
  const nth = (counts.get(name) ?? 0) + 1;
  counts.set(name, nth);
  const { at } = plan;
  return at === null || injected || at.effect !== name || at.nth !== nth ? null : at;
}

/** @param socket on which the answer arrives that reports the effect */
function fault(at, socket) {
  // The time of the fault may be over.
  readPlan();
  if (injected || plan?.at !== at) return;
  injected = true;
  const claim = join(directory, 'injected');
  try {
    writeFileSync(claim, 'yes', { flag: 'wx' });
  } catch (error) {
    if (error.code === 'EEXIST') return;
    throw error;
  }
  if (at.fault === 'kill') kill(process.pid, 'SIGKILL');
  else if (at.fault === 'lose') socket.destroy();
  else if (at.fault !== 'hold' && !killServer(at.fault.server)) writeFileSync(claim, 'no');
}

/**
 * Injects the fault when an answer arrives, before any listener gets it; a lost answer never
 * reaches one.
 */
function injectAtAnswer(socket, at) {
  const heard = socket.listeners('data');
  socket.removeAllListeners('data');
  socket.once('data', (chunk) => {
    fault(at, socket);
    if (socket.destroyed) return;
    for (const listener of heard) socket.on('data', listener);
    socket.emit('data', chunk);
  });
}

/**
 * Kills the first process of a service's PostgreSQL, as the machine's want of memory would.
 * @returns whether it ran
 */
function killServer(role) {
  const root = role === 'store' ? join(dataDirectory(), 'store') : rootOf(role);
  try {
    const launched = Number(readFileSync(join(root, 'pid'), 'utf8'));
    const [program] = readFileSync(`/proc/${launched}/cmdline`, 'utf8').split('\0');
    // In a PID namespace `unshare` was launched, and the postmaster is its child.
    const [child] = readFileSync(`/proc/${launched}/task/${launched}/children`, 'utf8').split(' ');
    const postmaster = program.endsWith('/postgres') ? launched : Number(child);
    // Not forked yet: no pid is 0, which would mean everybody of our process group.
    return postmaster > 1 && kill(postmaster, 'SIGKILL');
  } catch {
    return false; // it does not run at this moment
  }
}

function rootOf(role) {
  const services = join(dataDirectory(), 'services');
  const id = readdirSync(services).find(
    (entry) => ID.test(entry) && (plan.roles[entry] ?? 'new') === role,
  );
  return join(services, id ?? 'none');
}

function injectLater(at) {
  setTimeout(() => fault(at), at.delayMs);
}

/**
 * Every caller that reaches the held effect waits, not only the first: files are copied in
 * parallel.
 */
async function held(name) {
  const { at } = plan;
  while (
    injected &&
    plan?.at === at &&
    at?.fault === 'hold' &&
    at.effect === name &&
    !existsSync(join(directory, 'release'))
  )
    await new Promise((resolve) => void setTimeout(resolve, 5));
}

/** An effect that takes time. */
async function effect(name, act) {
  const at = note(name);
  if (at?.when === 'before') fault(at);
  await held(name);
  const acting = act();
  if (at?.when === 'during') injectLater(at);
  try {
    return await acting;
  } finally {
    if (at?.when === 'after') fault(at);
  }
}

/** An effect that is done when its call returns. */
function effectNow(name, act) {
  const at = note(name);
  if (at?.when === 'before') fault(at);
  try {
    return act();
  } finally {
    if (at?.when === 'during') injectLater(at);
    if (at?.when === 'after') fault(at);
  }
}

// ── what is watched
// ──────────────────────────────────────────────────────────────────────────────────────────────

const NAME = {
  writeFile: ([path]) => nameOf(path),
  mkdir: ([path]) => alike(nameOf(path)),
  rm: ([path]) => nameOf(path),
  rmdir: ([path]) => nameOf(path),
  chown: ([path]) => alike(nameOf(path)),
  symlink: ([, path]) => nameOf(path),
  rename: ([from, to]) =>
    nameOf(to) === null ? null : `${nameOf(from) ?? 'precloned'} → ${nameOf(to)}`,
  copyFile: ([, to]) => alike(nameOf(to)),
  cp: ([, to]) => nameOf(to),
};

for (const [call, name] of Object.entries(NAME)) {
  const original = fs.promises[call];
  fs.promises[call] = (...args) => {
    readPlan();
    const named = plan === null ? null : name(args);
    return named === null ? original(...args) : effect(`${call} ${named}`, () => original(...args));
  };
}

const open = fs.promises.open;
fs.promises.open = async (path, flags = 'r', ...rest) => {
  readPlan();
  const handle = await open(path, flags, ...rest);
  const name = plan === null || flags === 'r' ? null : alike(nameOf(path));
  if (name === null) return handle;
  const write = handle.write.bind(handle);
  handle.write = (...args) => effect(`write ${name}`, () => write(...args));
  return handle;
};

const { spawn } = childProcess;
childProcess.spawn = (program, args, ...rest) => {
  readPlan();
  const change = plan === null || program !== 'ip' ? null : networkChange(args);
  if (change !== null) return effectNow(`spawn ip ${change}`, () => spawn(program, args, ...rest));
  const names =
    plan === null || !Array.isArray(args) ? [] : args.map(nameOf).filter((name) => name !== null);
  const start = () => spawn(program, args, ...rest);
  return names.length === 0
    ? start()
    : effectNow(`spawn ${program.split('/').at(-1)} ${names.join(' ')}`, start);
};

/** The thing that a call of ip adds or removes, whatever its VPC and address; null: nothing. */
function networkChange(args) {
  const text = args
    .join(' ')
    .replace(/howdah-[0-9a-f]{8}-\d+/g, 'VPC')
    .replace(/to-\d+/g, 'to-VPC');
  return (
    /\b(netns|link|addr|route) (add|del|replace)\b.*/.exec(
      text.replace(/\d+(\.\d+){3}/g, 'ADDRESS'),
    )?.[0] ?? null
  );
}

process.kill = (pid, name) => {
  readPlan();
  const send = () => kill(pid, name);
  return plan === null || name === 0 ? send() : effectNow(`signal ${name}`, send);
};

/** Statements that change a service. */
const TELLING = new RegExp(
  'alter role|pg_backup_start|pg_backup_stop|pg_logical_emit_message|pg_reload_conf|' +
    'pg_switch_wal|checkpoint',
  'i',
);
/**
 * The destination of each socket; the texts of its prepared statements by name, and the one bound
 * last; whether a transaction is open on it, and what that has changed so far.
 */
const sockets = new WeakMap();

const connect = Reflect.get(Socket.prototype, 'connect');
Socket.prototype.connect = function connectNoting(...args) {
  if (typeof args[0] === 'string')
    sockets.set(this, { path: args[0], texts: new Map(), bound: null, open: false, changes: [] });
  return Reflect.apply(connect, this, args);
};

const write = Reflect.get(Socket.prototype, 'write');
Socket.prototype.write = function writeNoting(chunk, ...rest) {
  const send = () => Reflect.apply(write, this, [chunk, ...rest]);
  const to = sockets.get(this);
  if (to === undefined || !Buffer.isBuffer(chunk)) return send();
  const text = textToRun(to, chunk);
  if (text === null) return send();
  readPlan();
  const name = plan === null ? null : nameOfStatement(to, text);
  if (name === null) return send();
  const at = note(name);
  if (at?.when === 'before') fault(at);
  // The answer says that the statement was done.
  if (at !== null && at.when !== 'before') injectAtAnswer(this, at);
  return send();
};

function nameOfStatement(to, text) {
  const place = nameOf(to.path);
  if (place?.startsWith('services/') === true) {
    const telling = TELLING.exec(text)?.[0];
    return telling === undefined ? null : `tell ${place.split('/')[1]} ${telling.toLowerCase()}`;
  }
  if (place?.startsWith('store/') !== true) return null;
  if (text === 'begin' || text === 'rollback') {
    to.changes = [];
    to.open = text === 'begin';
    return null;
  }
  to.changes.push(
    ...Array.from(text.matchAll(CHANGE), ([, verb, table]) => `${verb.split(' ')[0]} ${table}`),
  );
  if (to.open && text !== 'commit') return null;
  const made = [...new Set(to.changes)].filter((change) => !BY_THE_WAY.includes(change)).join(', ');
  to.open = false;
  to.changes = [];
  return made === '' ? null : `commit ${made}`;
}

/** Statements that run whenever there is time. */
const BY_THE_WAY = ['insert samples', 'update api_keys'];

/**
 * A change of a table of the metadata database; statements may hold several. `for update of` and
 * `do update set` are none.
 */
const CHANGE = /(?<!\bfor |\bfor no key |\bdo )\b(insert into|update|delete from) "?(\w+)/g;

/** The statement that a message runs, by Query or Execute. A prepared text is sent only once. */
function textToRun(to, message) {
  switch (String.fromCharCode(message[0])) {
    case 'Q':
      return textAt(message, 5);
    case 'P': {
      const name = textAt(message, 5);
      to.texts.set(name, textAt(message, 5 + Buffer.byteLength(name) + 1));
      return null;
    }
    case 'B':
      to.bound = textAt(message, 5 + Buffer.byteLength(textAt(message, 5)) + 1);
      return null;
    case 'E':
      return to.texts.get(to.bound) ?? null;
    default:
      return null;
  }
}

/** The text that ends with a zero byte. */
function textAt(message, begin) {
  return message.toString('utf8', begin, message.indexOf(0, begin));
}

syncBuiltinESMExports();
