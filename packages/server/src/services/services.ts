/**
 * What can be asked of a service: check the rule, record the wish in one transaction, poke. The reconciler makes it true.
 * The two exceptions touch the engine themselves: a new password must be live before the answer, and reads of logs and metrics.
 */
import {
  ADDONS_OF_TYPE,
  ALLOWED,
  ApiError,
  DEFAULT_SIZE,
  parseSize,
  refusal,
  sameSize,
  typeOfAddons,
  type Action,
  type Addon,
  type CreateServiceBody,
  type Environment,
  type ForkBody,
  NAME_MAX_CHARACTERS,
  type LogEntry,
  type OperationKind,
  type SeriesBody,
  type Size,
  type SizeInput,
  SERIES_NAMES,
} from '@howdah/contract';
import { parseMoment } from '../moment.ts';
import { BadCursor, EngineUnavailable, type LogQuery, type Origin } from '../engine/engine.ts';
import { newPassword } from '../ids.ts';
import { scramVerifier } from '../scram.ts';
import type { Store, Tx } from '../store/database.ts';
import { makeDue } from '../store/leases.ts';
import { beginOperation, recordOperation, type OperationRow } from '../store/operations.ts';
import { readSeries } from '../store/samples.ts';
import {
  changeService,
  insertSpare,
  lockService,
  nextPort,
  sizeColumns,
  sizeOf,
  takeSpare,
  type ServiceChange,
  type ServiceRow,
} from '../store/services.ts';
import { defaultAddons, type Region } from './regions.ts';

/** Who asks: the public half of a key. */
export type Caller = { publicKey: string; projectId: string };

/** An accepted change: the service's document as it is now, and the operation that makes it true, where there is anything to do. */
export type Accepted = { doc: string; operationId: string | null };

export function createServices(store: Store, region: Region) {
  // ── create ─────────────────────────────────────────────────────────────────────────────────────────────────────

  const create = async (caller: Caller, body: CreateServiceBody): Promise<Accepted & { initialPassword: string }> => {
    const addons = addonsOf(body);
    const size = sizeOrRefuse(body.cpu_millis, body.memory_gbs, { fallback: DEFAULT_SIZE, sharedAllowed: true });
    if (body.region_code !== undefined && body.region_code !== region.code) {
      throw new ApiError(
        'INVALID_REQUEST',
        `region_code: found ${JSON.stringify(body.region_code)}; allowed: ${region.code} (GET /projects/{project_id}/regions)`,
      );
    }
    if ((body.replica_count ?? 0) > 0) {
      throw new ApiError(
        'UNAVAILABLE_HERE',
        `replica_count: found ${body.replica_count}; this release runs services without HA replicas, allowed is 0`,
      );
    }
    const capability = region.engine.supports(addons);
    if ('missing' in capability) throw new ApiError('UNAVAILABLE_HERE', `${typeOfAddons(addons)}: ${capability.missing}`);
    const initialPassword = newPassword();
    const verifier = await scramVerifier(initialPassword);
    const change = {
      project_id: caller.projectId,
      name: body.name,
      environment: body.environment_tag ?? 'DEV',
      created: new Date(),
      first_verifier: verifier,
    };
    const accepted = await store.db.transaction().execute(async (tx) => {
      const fresh = (await takeSpare(tx, { region: region.code, addons, size })) ?? (await reserve(tx, addons, size, null));
      const operation = await beginOperation(tx, { id: fresh.id, project_id: caller.projectId }, 'create', caller.publicKey, null);
      const row = await changeService(tx, fresh, change, operation);
      await makeDue(tx, row.id);
      return { doc: row.doc, operationId: operation.id };
    });
    return { ...accepted, initialPassword };
  };

  /** A service with a port of its own: not promised to another service, and not held by another program. */
  const reserve = async (tx: Tx, addons: readonly Addon[], size: Size, origin: Origin | null): Promise<ServiceRow> => {
    let port = await nextPort(tx, region.code, region.portRange, null);
    const first = port;
    while (port !== null && !(await region.engine.portIsFree(port))) {
      port = await nextPort(tx, region.code, region.portRange, port);
      if (port === first) port = null;
    }
    if (port === null) {
      throw new ApiError(
        'LIMIT_EXCEEDED',
        `no port is left: all of HOWDAH_PORT_RANGE ${region.portRange.join('-')} are taken; widen the range, or delete services and wait: deleted ones keep theirs for HOWDAH_UNDELETE_HOURS`,
      );
    }
    return insertSpare(tx, { region: region.code, serviceType: typeOfAddons(addons), addons, size, host: region.host, port, origin });
  };

  const addonsOf = (body: CreateServiceBody): readonly Addon[] => {
    if (body.addons !== undefined && body.service_type !== undefined) {
      throw new ApiError(
        'INVALID_REQUEST',
        `service_type: found together with addons; send one of them (addons decide the type: ${typeOfAddons(body.addons)})`,
      );
    }
    if (body.service_type !== undefined) return ADDONS_OF_TYPE[body.service_type];
    return body.addons?.toSorted().toReversed() ?? defaultAddons(region.engine);
  };

  // ── fork, restore ──────────────────────────────────────────────────────────────────────────────────────────────

  const fork = async (caller: Caller, parentId: string, body: ForkBody): Promise<Accepted & { initialPassword: string }> => {
    const origin: Origin = { parent: parentId, strategy: body.fork_strategy, targetTime: await targetTimeOf(parentId, body) };
    await refuseFullDisk();
    const initialPassword = newPassword();
    const verifier = await scramVerifier(initialPassword);
    const accepted = await store.db.transaction().execute(async (tx) => {
      const { service: parent } = await lockOwn(tx, caller, parentId);
      const action = body.fork_strategy === 'NOW' ? 'forkNow' : 'forkPast';
      if (ALLOWED[parent.status][action] !== 'accept') throw new ApiError('INVALID_STATE', refusal(action, parent.status));
      const size = sizeOrRefuse(body.cpu_millis, body.memory_gbs, { fallback: sizeOf(parent), sharedAllowed: true });
      const fresh = await reserve(tx, parent.addons, size, origin);
      const operation = await beginOperation(tx, { id: fresh.id, project_id: caller.projectId }, 'fork', caller.publicKey, null);
      const name = body.name ?? `${[...parent.name].slice(0, NAME_MAX_CHARACTERS - FORK_SUFFIX.length).join('')}${FORK_SUFFIX}`;
      const change = {
        project_id: caller.projectId,
        name,
        environment: body.environment_tag ?? 'DEV',
        created: new Date(),
        first_verifier: verifier,
      };
      const row = await changeService(tx, fresh, change, operation);
      await makeDue(tx, row.id);
      return { doc: row.doc, operationId: operation.id };
    });
    return { ...accepted, initialPassword };
  };

  /** The point in time of a fork, if it has one, inside the window that its parent's backups reach. */
  const targetTimeOf = async (parentId: string, body: ForkBody): Promise<string | null> => {
    if (body.fork_strategy !== 'PITR') {
      if (body.target_time === undefined) return null;
      throw new ApiError('INVALID_REQUEST', `target_time: found with the strategy ${body.fork_strategy}; it goes with PITR only`);
    }
    const moment = parseMoment(body.target_time ?? '');
    if (moment === null) {
      throw new ApiError(
        'INVALID_REQUEST',
        `target_time: found ${JSON.stringify(body.target_time ?? null)}; PITR takes a date-time with an offset, like 2026-01-31T12:00:00.123456Z`,
      );
    }
    const { window } = await region.engine.backups(parentId);
    const [earliestMs, latestMs] = [Date.parse(window.earliest ?? ''), Date.parse(window.latest ?? '')];
    // A clock that is a little ahead of ours means now.
    if (!(moment.ms >= earliestMs && moment.ms <= latestMs + CLOCK_SKEW_MS)) {
      const reachable = window.earliest === null ? 'none yet' : `${window.earliest} to ${window.latest}`;
      throw new ApiError('INVALID_REQUEST', `target_time: ${body.target_time} is outside the window that can be reached: ${reachable}`, {
        window,
      });
    }
    return moment.ms > latestMs ? window.latest : moment.text;
  };

  /** A disk that is nearly full is kept for the services that are there. */
  const refuseFullDisk = async (): Promise<void> => {
    const { usedPercent, freeBytes, totalBytes, path } = await region.engine.disk();
    if (usedPercent < DISK_FULL_PERCENT) return;
    const gb = (bytes: number) => (bytes / 1e9).toFixed(1);
    throw new ApiError(
      'LIMIT_EXCEEDED',
      `the disk of ${path} is ${usedPercent.toFixed(1)} % full (${gb(freeBytes)} of ${gb(totalBytes)} GB free); no forks are made from ${DISK_FULL_PERCENT} % on: delete services or make room`,
    );
  };

  /** Brings a deleted service back as it was, within the time for it. */
  const restore = async (caller: Caller, id: string): Promise<Accepted> =>
    store.db.transaction().execute(async (tx) => {
      const locked = await lockService(tx, id);
      if (locked === null || locked.service.project_id !== caller.projectId) throw serviceNotFound(id);
      const { service, operation } = locked;
      if (operation?.kind === 'restore') return { doc: service.doc, operationId: operation.id };
      if (service.deleted_at === null)
        throw new ApiError(
          'INVALID_STATE',
          `cannot restore a service that is ${service.status}: restore is for deleted ones${service.deleting ? ', once its processes have stopped' : ''}`,
        );
      const next = await beginOperation(tx, service, 'restore', caller.publicKey, null);
      const row = await changeService(tx, service, { deleting: false, deleted_at: null, attempt: 0 }, next);
      await makeDue(tx, id);
      return { doc: row.doc, operationId: next.id };
    });

  // ── changes of what is there ───────────────────────────────────────────────────────────────────────────────────

  /**
   * One change under the rules: locks the service, asks the table whether its status allows the action, and lets `decide` say what changes.
   * `decide` returns null when everything is so already.
   */
  const change = async (
    caller: Caller,
    id: string,
    action: Action,
    decide: (service: ServiceRow) => ServiceChange | null,
    kind: OperationKind,
  ): Promise<Accepted> =>
    store.db.transaction().execute(async (tx) => {
      const { service, operation } = await lockOwn(tx, caller, id);
      const verdict = ALLOWED[service.status][action];
      if (verdict === 'refuse') throw new ApiError('INVALID_STATE', refusal(action, service.status));
      if (verdict === 'underway') return { doc: service.doc, operationId: operation?.id ?? null };
      const changed = decide(service);
      if (changed === null) return { doc: service.doc, operationId: null };
      const next = await beginOperation(tx, service, kind, caller.publicKey, operation);
      const row = await changeService(tx, service, { ...changed, attempt: 0 }, next);
      await makeDue(tx, id);
      return { doc: row.doc, operationId: next.id };
    });

  /** A change that needs no engine: done when it is answered, whatever else is under way. */
  const note = async (
    caller: Caller,
    id: string,
    action: Extract<Action, 'rename' | 'setEnvironment'>,
    changed: ServiceChange,
  ): Promise<Accepted> =>
    store.db.transaction().execute(async (tx) => {
      const { service, operation } = await lockOwn(tx, caller, id);
      if (ALLOWED[service.status][action] !== 'accept') throw new ApiError('INVALID_STATE', refusal(action, service.status));
      const operationId = await recordOperation(tx, service, action, caller.publicKey);
      const row = await changeService(tx, service, changed, operation);
      return { doc: row.doc, operationId };
    });

  const lockOwn = async (tx: Tx, caller: Caller, id: string): Promise<{ service: ServiceRow; operation: OperationRow | null }> => {
    const locked = await lockService(tx, id);
    if (locked === null || locked.service.project_id !== caller.projectId || locked.service.deleted_at !== null) throw serviceNotFound(id);
    return locked;
  };

  const resize = (caller: Caller, id: string, cpuMillis: SizeInput, memoryGbs: SizeInput): Promise<Accepted> => {
    const size = sizeOrRefuse(cpuMillis, memoryGbs, { fallback: null, sharedAllowed: false });
    return change(caller, id, 'resize', (service) => (sameSize(sizeOf(service), size) ? null : sizeColumns(size)), 'resize');
  };

  const updatePassword = async (caller: Caller, id: string, password: string): Promise<Accepted> => {
    const verifier = await scramVerifier(password);
    // The row stays locked until the password is live: a stop or a delete waits for its turn.
    return store.db.transaction().execute(async (tx) => {
      const { service, operation } = await lockOwn(tx, caller, id);
      if (ALLOWED[service.status].updatePassword !== 'accept')
        throw new ApiError('INVALID_STATE', refusal('updatePassword', service.status));
      await reachEngine(() => region.engine.setPassword(id, verifier));
      const operationId = await recordOperation(tx, service, 'updatePassword', caller.publicKey);
      const row = await changeService(tx, service, {}, operation);
      return { doc: row.doc, operationId };
    });
  };

  // ── reads that ask the engine ──────────────────────────────────────────────────────────────────────────────────

  const logs = async (id: string, query: LogQuery): Promise<{ entries: LogEntry[]; cursor: string | null }> => {
    try {
      return await region.engine.logs(id, query);
    } catch (error) {
      if (error instanceof BadCursor) throw new ApiError('INVALID_REQUEST', error.message);
      throw error;
    }
  };

  const series = async (id: string, body: SeriesBody) => {
    const name = SERIES_NAMES.find((candidate) => candidate === body.name);
    if (name === undefined)
      throw new ApiError('INVALID_REQUEST', `name: found ${JSON.stringify(body.name)}; allowed: ${SERIES_NAMES.join(', ')}`);
    const [fromMs, toMs, bucketSeconds] = [Date.parse(body.from), Date.parse(body.to), body.bucket_seconds ?? 60];
    // A leap second is a date-time and no moment of a clock: it compares as neither before nor after.
    if (!(fromMs < toMs)) throw new ApiError('INVALID_REQUEST', `from: ${body.from} is not before to: ${body.to}`);
    const buckets = Math.ceil((toMs - fromMs) / (bucketSeconds * 1000));
    if (buckets > MAX_BUCKETS) {
      const least = Math.ceil((toMs - fromMs) / 1000 / MAX_BUCKETS);
      throw new ApiError(
        'INVALID_REQUEST',
        `bucket_seconds: found ${bucketSeconds}, which makes ${buckets} points; at most ${MAX_BUCKETS} are answered: take ${least} or more`,
      );
    }
    // The only label is the node; a filter for another one, or by another key, finds nothing.
    const matches = (body.filters ?? []).every(({ key, value }) => key === 'node' && value === PRIMARY_NODE);
    const values = matches
      ? await readSeries(store.db, id, { name, from: new Date(fromMs), to: new Date(toMs), bucketSeconds, fn: body.fn ?? 'avg' })
      : null;
    if (values === null) return [];
    const data = Array.from({ length: buckets }, (_, index) => ({
      time: new Date(fromMs + index * bucketSeconds * 1000).toISOString(),
      value: values.get(index) ?? null,
    }));
    return [{ labels: { node: PRIMARY_NODE }, data }];
  };

  return {
    create,
    fork,
    restore,
    backups: (id: string) => region.engine.backups(id),
    start: (caller: Caller, id: string) => change(caller, id, 'start', () => ({ power: 'running' }), 'start'),
    stop: (caller: Caller, id: string) => change(caller, id, 'stop', () => ({ power: 'paused' }), 'stop'),
    resize,
    remove: (caller: Caller, id: string) => change(caller, id, 'delete', () => ({ deleting: true }), 'delete'),
    rename: (caller: Caller, id: string, name: string) => note(caller, id, 'rename', { name }),
    setEnvironment: (caller: Caller, id: string, environment: Environment) => note(caller, id, 'setEnvironment', { environment }),
    updatePassword,
    logs,
    series,
  };
}
export type Services = ReturnType<typeof createServices>;

const FORK_SUFFIX = '-fork';
/** From here on no forks are made. */
const DISK_FULL_PERCENT = 95;
/** By how much a client's clock may be ahead when it asks for now. */
const CLOCK_SKEW_MS = 5000;

/** Points of one series; more are refused rather than computed. */
const MAX_BUCKETS = 11_000;
/** The node whose figures a service's series are. */
export const PRIMARY_NODE = '0';

/** The answer for a service that is not there, not yet or no more, or somebody else's. Old clients look for the first words. */
export function serviceNotFound(id: string): ApiError {
  return new ApiError(
    'NOT_FOUND',
    `no service with that id exists: ${JSON.stringify(id.slice(0, 64))}; GET /projects/{project_id}/services lists them`,
  );
}

function sizeOrRefuse(cpuMillis: SizeInput, memoryGbs: SizeInput, rules: Parameters<typeof parseSize>[2]): Size {
  const parsed = parseSize(cpuMillis, memoryGbs, rules);
  if ('problem' in parsed) throw new ApiError('INVALID_REQUEST', parsed.problem);
  return parsed.size;
}

async function reachEngine<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    if (error instanceof EngineUnavailable)
      throw new ApiError('UNAVAILABLE', `the service does not answer: ${error.message}; try again in a moment`);
    throw error;
  }
}
