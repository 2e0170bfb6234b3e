/**
 * Enforces the storage quotas of services (`storage_gb`) by measuring. This works on every file
 * system, and a server that takes too much becomes read-only. Under a quota of the kernel it would
 * end in the middle of a WAL write. A tenant can set its transactions to read-write again: see
 * docs/decisions/0027-storage-quota.md.
 */
import { join } from 'node:path';
import type { Warning } from '@howdah/contract';
import { bytesBelow } from './space.ts';
import { capLog } from './daemon.ts';
import { QUOTA_FILE } from '../../postgres/server-conf.ts';
import { memberKey, partsOfKey, type InstancePaths } from './layout.ts';
import { pruneLogs } from '../../postgres/logs.ts';
import type { Machine } from './machine-record.ts';
import type { DiskPressure, Relief } from '../../engine.ts';
import type { Monitored } from '../../postgres/sessions/monitor.ts';
import { childrenOf, readOrNull } from '../../../lib/processes.ts';
import {
  exceeded,
  FROZEN_GROWTH_BYTES,
  limitOf,
  logBudget,
  quotaFile,
  quotaStep,
  storageWarning,
  type QuotaStep,
} from './quota-rules.ts';
import { rm } from './root-files.ts';
import { findServer, writeConfig, type Server } from '../postgres/server.ts';
import { ownerOf } from './users.ts';

/** How quotas are enforced, as users read it. */
export const QUOTA_NOTE =
  'measured each 10 s, and each second while the disk fills: ' +
  'a service that takes more than storage_gb is read-only, its sessions are ended if it ' +
  'grows further, and it is paused at a fifth more';

/** A server that has written less than this since the last measurement is not measured again. */
const UNMEASURED_BYTES = 1e6;
/** After this long it is measured in any case. */
const MEASURE_AGAIN_MS = 60_000;
/** Server logs that grow by more than this between two measurements are a flood. */
const LOG_FLOOD_BYTES = 20e6;
const LOG_QUIET_MS = 60_000;
/** Statistics and checkpoints write a little; a service that wrote more than this has grown. */
const GROWN_BYTES = FROZEN_GROWTH_BYTES / 2;
/** Snapshots that make room in the archive are taken at most this often. */
const RELIEVE_EVERY_MS = 10_000;

/** The last measurement of one server. */
type State = {
  startTicks: string;
  usedBytes: number;
  archiveBytes: number;
  leastBytes: number;
  writtenBytes: number;
  measuredMs: number;
  logBytes: number;
  quietUntilMs: number;
  /** The service's size when the disk became full; null: the disk is not full. */
  frozenBytes: number | null;
};

export type QuotaOptions = {
  quotaBytes: number;
  pressure: DiskPressure;
  /** Removes what only older backups need: snapshots and archived WAL. null: nothing. */
  relieve: () => Promise<Relief | null>;
};

/** The measurements and warnings of the servers on this machine. */
export type Quotas = {
  readonly machine: Machine;
  readonly monitor: Monitored;
  /** By the keys of servers. */
  readonly states: Map<string, State>;
  /** By the ids of services, like the others. */
  readonly warned: Map<string, Warning>;
  /** When it was last tried to make room in an archive, and what came of it. */
  readonly triedMs: Map<string, number>;
  readonly reliefs: Map<string, Relief>;
  /** Reliefs that were not reported yet. */
  readonly unreported: Map<string, Relief>;
  readonly relieving: Set<string>;
};

export function createQuotas(machine: Machine, monitor: Monitored): Quotas {
  return {
    machine,
    monitor,
    states: new Map(),
    warned: new Map(),
    triedMs: new Map(),
    reliefs: new Map(),
    unreported: new Map(),
    relieving: new Set(),
  };
}

/**
 * Measures the running servers of a service and enforces their quota.
 *
 * @returns why the service must be paused; null: it need not be
 */
export async function enforceQuota(
  quotas: Quotas,
  id: string,
  numbers: readonly number[],
  options: QuotaOptions,
): Promise<string | null> {
  const { layout } = quotas.machine;
  let stop: string | null = null;
  let worst: Warning | null = null;
  await capLog(layout.service(id).pooler);
  await capLog(layout.gateway(id));
  for (const n of numbers) {
    const found = await enforceOnServer(quotas, id, n, options);
    if (found === null) continue;
    const { step, usedBytes, isQuiet } = found;
    const warning = storageWarning({
      usedBytes,
      quotaBytes: options.quotaBytes,
      isReadOnly: step.isReadOnly,
      frozen: options.pressure !== 'none',
      isQuiet,
      stops: step.stops,
      relief: quotas.reliefs.get(id) ?? null,
    });
    if (worst === null || step.isReadOnly) worst = warning;
    if (step.stops) stop = warning?.message ?? 'it takes more of the disk than it may';
  }
  if (worst === null) quotas.warned.delete(id);
  else quotas.warned.set(id, worst);
  return stop;
}

export function quotaWarnings({ warned }: Quotas, id: string): Warning[] {
  return [warned.get(id)].filter((warning) => warning !== undefined);
}

/** The services that have grown since the disk became full; none: it is not full. */
export function grownServices({ states }: Quotas): Set<string> {
  const grown = new Set<string>();
  for (const [key, { usedBytes, frozenBytes }] of states) {
    const grownBytes = frozenBytes === null ? 0 : usedBytes - frozenBytes;
    if (grownBytes > GROWN_BYTES) grown.add(partsOfKey(key).id);
  }
  return grown;
}

/** The disk space that a server takes, running or not. */
export async function usedBytesOf(paths: InstancePaths): Promise<number> {
  return (await measureFiles(paths, false)).usedBytes;
}

/** The relief of a service that is to be reported, once. */
export function takeRelief({ unreported }: Quotas, id: string): Relief | null {
  const relief = unreported.get(id) ?? null;
  unreported.delete(id);
  return relief;
}

export function forgetQuota(
  { states, warned, triedMs, reliefs, unreported }: Quotas,
  id: string,
  numbers: readonly number[],
): void {
  warned.delete(id);
  for (const known of [triedMs, reliefs, unreported]) known.delete(id);
  for (const n of numbers) states.delete(memberKey(id, n));
}

/** The enforced rules; `isQuiet`: whether the server writes less to its server log. */
type Enforced = { step: QuotaStep; usedBytes: number; isQuiet: boolean };

/** @returns null if the server does not run, or is not watched */
async function enforceOnServer(
  quotas: Quotas,
  id: string,
  n: number,
  options: QuotaOptions,
): Promise<Enforced | null> {
  const { machine, monitor, states } = quotas;
  const key = memberKey(id, n);
  const paths = machine.layout.member(id, n);
  const primary = machine.layout.primaryOf(id);
  const server = await findServer(paths);
  if (server === null || !monitor.isConnected(key)) {
    states.delete(key);
    return null;
  }
  const before = states.get(key);
  const state = await measureServer(before, paths, n === primary, server);
  const keptBytes = logBudget(options.quotaBytes);
  if (state.logBytes > keptBytes) {
    await pruneLogs(paths.logs, keptBytes);
    state.logBytes = Math.min(state.logBytes, await bytesBelow(paths.logs));
  }
  if (n === primary) makeRoom(quotas, id, state, options);
  const isFull = options.pressure !== 'none';
  state.frozenBytes = isFull ? (state.frozenBytes ?? state.usedBytes) : null;
  states.set(key, state);
  const limitBytes = limitOf({
    quotaBytes: options.quotaBytes,
    frozenBytes: state.frozenBytes,
    pressure: options.pressure,
    sizes: [...states.values()].map((each) => each.usedBytes),
  });
  const current = (await readOrNull(join(paths.config, QUOTA_FILE))) ?? '';
  const step = quotaStep({
    usedBytes: state.usedBytes,
    limitBytes,
    frozen: isFull,
    beforeBytes: before?.startTicks === state.startTicks ? before.usedBytes : null,
    leastBytes: state.leastBytes,
    isReadOnly: current.includes('default_transaction_read_only'),
  });
  await apply(quotas, key, paths, step, state.quietUntilMs > Date.now(), current);
  return { step, usedBytes: state.usedBytes, isQuiet: state.quietUntilMs > Date.now() };
}

/** Measures the files of a server, unless it has written too little since they were measured. */
async function measureServer(
  known: State | undefined,
  paths: InstancePaths,
  holdsArchive: boolean,
  server: Server,
): Promise<State> {
  const before = known?.startTicks === server.postmaster.startTicks ? known : undefined;
  const writtenBytes = await bytesWritten(server.postmaster.pid);
  const isQuiet =
    before !== undefined &&
    writtenBytes !== null &&
    writtenBytes - before.writtenBytes < UNMEASURED_BYTES;
  if (isQuiet && Date.now() - before.measuredMs < MEASURE_AGAIN_MS) return before;
  const { usedBytes, archiveBytes, logBytes } = await measureFiles(paths, holdsArchive);
  const isFlood = before !== undefined && logBytes - before.logBytes > LOG_FLOOD_BYTES;
  return {
    startTicks: server.postmaster.startTicks,
    usedBytes,
    archiveBytes,
    leastBytes: Math.min(usedBytes, before?.leastBytes ?? usedBytes),
    writtenBytes: writtenBytes ?? 0,
    measuredMs: Date.now(),
    logBytes,
    quietUntilMs: isFlood ? Date.now() + LOG_QUIET_MS : (before?.quietUntilMs ?? 0),
    frozenBytes: before?.frozenBytes ?? null,
  };
}

/**
 * Relieves the archive before the service is limited. In the background: a snapshot takes a while,
 * and a flood continues meanwhile.
 */
function makeRoom(
  quotas: Quotas,
  id: string,
  { usedBytes, archiveBytes }: State,
  { quotaBytes, relieve }: QuotaOptions,
): void {
  const { relieving, triedMs } = quotas;
  if (relieving.has(id) || !exceeded({ usedBytes, archiveBytes, quotaBytes })) return;
  if (Date.now() - (triedMs.get(id) ?? 0) < RELIEVE_EVERY_MS) return;
  triedMs.set(id, Date.now());
  relieving.add(id);
  relieve()
    .then((relief) => noteRelief(quotas, id, relief))
    .catch(() => triedMs.delete(id)) // tried again with the next measurement
    .finally(() => relieving.delete(id));
}

function noteRelief({ reliefs, unreported }: Quotas, id: string, relief: Relief | null): void {
  if (relief === null) return;
  reliefs.set(id, relief);
  unreported.set(id, relief);
}

/** Makes a server read-only or read-write, and ends sessions, as the rules ask. */
async function apply(
  { machine, monitor }: Quotas,
  key: string,
  paths: InstancePaths,
  { isReadOnly, ends }: QuotaStep,
  isQuiet: boolean,
  current: string,
): Promise<void> {
  const text = quotaFile({ isReadOnly, isQuiet });
  if (text !== current) {
    if (text === '') await rm(join(paths.config, QUOTA_FILE), { force: true });
    else await writeConfig(ownerOf(machine, paths), paths, { [QUOTA_FILE]: text });
    await monitor.query(key, 'select pg_catalog.pg_reload_conf()');
  }
  if (ends !== 'nobody') await monitor.query(key, END_SESSIONS[ends]);
}

const OTHERS = `pid <> pg_catalog.pg_backend_pid() and usename <> 'howdah'::pg_catalog.name`;
const END_SESSIONS = {
  /** Sessions that have written in their current transaction. */
  writers:
    'select pg_catalog.pg_terminate_backend(pid) from pg_catalog.pg_stat_activity ' +
    `where ${OTHERS} and backend_xid is not null`,
  all: `select pg_catalog.pg_terminate_backend(pid) from pg_catalog.pg_stat_activity
        where ${OTHERS} and backend_type <> 'walsender'
          and (state <> 'idle' or backend_xid is not null)`,
} as const;

/**
 * The disk space of a server's files: its data with WAL and temporary files, its logs, and for a
 * primary the archive.
 */
async function measureFiles(paths: InstancePaths, holdsArchive: boolean) {
  const [data, logBytes, archiveBytes] = await Promise.all([
    bytesBelow(paths.data).catch(nothingThere),
    bytesBelow(paths.logs).catch(nothingThere),
    holdsArchive ? bytesBelow(paths.archive).catch(nothingThere) : 0,
  ]);
  return { usedBytes: data + logBytes + archiveBytes, archiveBytes, logBytes };
}

/** The directory does not exist yet, or no longer. */
const nothingThere = (): number => 0;

/**
 * The bytes that the processes of a server have written since it started, ended ones included;
 * null: this system does not show it.
 */
async function bytesWritten(postmaster: number): Promise<number | null> {
  const texts = await Promise.all(
    [postmaster, ...(await childrenOf(postmaster))].map((pid) => readIo(pid)),
  );
  if (texts[0] === null) return null;
  return texts.reduce((sum, text) => sum + Number(/^wchar: (\d+)$/m.exec(text ?? '')?.[1] ?? 0), 0);
}

async function readIo(pid: number): Promise<string | null> {
  return readOrNull(`/proc/${pid}/io`).catch(() => null);
}
