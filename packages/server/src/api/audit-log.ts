/**
 * Every call that may change something, or reads the contents of a database, gets an entry in the
 * audit log, allowed or refused. The entry of a call that begins an operation is written in the
 * same transaction; that of another accepted change before its answer. Refused calls and statements
 * are counted, and written after the answer.
 */
import { ERROR_CODES, isId, permissionOf, type ErrorCode, type Permission } from '@howdah/contract';
import type { FastifyBaseLogger, FastifyRequest } from 'fastify';
import {
  insertAuditEntries,
  raiseAuditCounts,
  type AuditFacts,
  type AuditNote,
  type AuditCount,
} from '../store/audit-log.ts';
import type { Store } from '../store/database.ts';
import type { KeyRow } from '../store/keys.ts';
import type { App } from './context.ts';

/**
 * New entries of refused calls are written together this often, and how often they have been
 * repeated.
 */
const FLUSH_AFTER_MS = 100;
const COUNTS_AFTER_MS = 5000;

const notes = new WeakMap<FastifyRequest, AuditNote>();

/** The entry for a request; null: the audit log does not record it, or it belongs to no project. */
export function auditNoteOf(request: FastifyRequest): AuditNote | null {
  const known = notes.get(request);
  if (known !== undefined) return known;
  const facts = factsOf(request);
  if (facts === null) return null;
  const note = { facts, recorded: false };
  notes.set(request, note);
  return note;
}

function factsOf(request: FastifyRequest): AuditFacts | null {
  const { schema } = request.routeOptions;
  const call = schema?.operationId;
  const permission = permissionOf(call);
  if (call === undefined || permission === null || !isAudited(permission)) return null;
  // Before the key has been checked there is none, whatever its type says.
  const key: KeyRow | undefined = request.key;
  const { project_id: named, service_id: serviceId } = parametersOf(request.params);
  const projectId = key?.project_id ?? named;
  if (projectId === undefined || !isId(projectId)) return null;
  return {
    project_id: projectId,
    public_key: key?.key ?? parseAuthorization(request.headers.authorization)?.publicKey ?? null,
    address: request.ip,
    call,
    method: request.method,
    path: (request.url.split('?')[0] ?? '').slice(0, 256),
    service_id: serviceId !== undefined && isId(serviceId) ? serviceId : null,
    operation_id: null,
    status: successOf(schema?.response),
    code: null,
    request_id: request.id,
  };
}

/** Calls that change something, and those that read the contents of a database. */
const isAudited = (permission: Permission): boolean =>
  permission.changes || permission.readsData === true;

/** The status of a route's success: the only one below 300 that it declares. */
function successOf(response: unknown): number {
  const statuses =
    typeof response === 'object' && response !== null ? Object.keys(response).map(Number) : [];
  return statuses.find((status) => status >= 200 && status < 300) ?? 200;
}

/** Registers the hooks. Before the guard: what that refuses is audited too. */
export function auditCalls(api: App, store: Store, log: FastifyBaseLogger): void {
  const counts = createAuditCounts();
  let flushing: Promise<void> = Promise.resolve();
  const timers: { fresh?: NodeJS.Timeout | undefined; counts?: NodeJS.Timeout | undefined } = {};
  const drops = createDropLog(
    log,
    'refused calls without a valid key are not in the audit log: there were too many',
  );

  const write = async (entries: readonly AuditFacts[]): Promise<void> => {
    try {
      await insertAuditEntries(store.db, entries);
    } catch (error) {
      log.error(
        { err: error, entries },
        'entries of the audit log could not be written; this line contains them',
      );
    }
  };

  /** One after the other: a count is raised after its entry was written. */
  const flush = (what: 'fresh' | 'counts'): void => {
    clearTimeout(timers[what]);
    timers[what] = undefined;
    flushing = writeAfter(flushing, what === 'counts');
  };

  const writeAfter = async (before: Promise<void>, withCounts: boolean): Promise<void> => {
    await before;
    const fresh = counts.takeNew();
    if (fresh.length > 0) await write(fresh);
    if (!withCounts) return;
    try {
      await raiseAuditCounts(store.db, counts.takeCounts());
    } catch (error) {
      log.error({ err: error }, 'counts of the audit log could not be written');
    }
  };

  const count = (entry: AuditFacts, known: boolean): void => {
    if (!counts.count(entry, known)) return drops.count();
    timers.fresh ??= setTimeout(() => flush('fresh'), FLUSH_AFTER_MS);
    timers.counts ??= setTimeout(() => flush('counts'), COUNTS_AFTER_MS);
  };

  api.addHook('onSend', async (request, reply, payload) => {
    const note = auditNoteOf(request);
    if (note === null) return;
    const key: KeyRow | undefined = request.key;
    if (reply.statusCode >= 400)
      count({ ...note.facts, status: reply.statusCode, code: codeOf(payload) }, key !== undefined);
    else if (request.change === undefined) count({ ...note.facts, status: reply.statusCode }, true);
    // A dry run changed nothing, so it gets no entry.
    else if (!note.recorded && !request.change.dryRun) {
      const operation = reply.getHeader('Operation-Id');
      await write([
        {
          ...note.facts,
          status: reply.statusCode,
          operation_id: typeof operation === 'string' ? operation : null,
        },
      ]);
    }
  });
  api.addHook('onClose', async () => {
    clearTimeout(timers.fresh);
    flush('counts');
    await flushing;
    drops.close();
  });
}

/** The code in the body of an error. */
function codeOf(payload: unknown): ErrorCode {
  const body: unknown = typeof payload === 'string' ? JSON.parse(payload) : null;
  const code: unknown =
    typeof body === 'object' && body !== null ? Reflect.get(body, 'code') : null;
  return ERROR_CODES.find((known) => known === code) ?? 'INTERNAL';
}

// Entries of the audit log that stand for more than one call. Calls that changed nothing are
// counted: one entry for each key, operation, answer and service that it reads, and ten minutes,
// whatever ids the calls name. A key cannot make the audit log grow by being refused.

type CountedEntry = { facts: AuditFacts; count: number; lastAt: Date; written: boolean };

/** For how long calls are counted in the same entry. */
const WINDOW_MS = 600_000;
/**
 * Entries of one window: of callers without a valid key, who choose what they say their key and
 * project are, and of all.
 */
const MOST_UNAUTHENTICATED = 100;
const MOST_ENTRIES = 20_000;

export function createAuditCounts(now: () => number = Date.now) {
  let open = new Map<string, CountedEntry>();
  let beganMs = now();
  let unauthenticated = 0;
  /** Entries that differ from their rows, or have none. */
  let changed = new Set<CountedEntry>();

  const add = (facts: AuditFacts, known: boolean): boolean => {
    const name = nameOf(facts);
    const found = open.get(name);
    if (found !== undefined) {
      found.count++;
      found.lastAt = new Date(now());
      changed.add(found);
      return true;
    }
    if (open.size >= MOST_ENTRIES || (!known && ++unauthenticated > MOST_UNAUTHENTICATED))
      return false;
    const entry = {
      facts: { ...facts, at: new Date(now()) },
      count: 1,
      lastAt: new Date(now()),
      written: false,
    };
    open.set(name, entry);
    changed.add(entry);
    return true;
  };

  return {
    /**
     * Counts a call. @param known whether its key is valid. @returns false where there are too many
     * entries already
     */
    count: (facts: AuditFacts, known: boolean): boolean => {
      if (Math.abs(now() - beganMs) >= WINDOW_MS) {
        open = new Map();
        beganMs = now();
        unauthenticated = 0;
      }
      return add(facts, known);
    },
    /** Entries to insert, whose counts are as they are now. */
    takeNew: (): AuditFacts[] => {
      const fresh = [...changed].filter(({ written }) => !written);
      for (const entry of fresh) {
        entry.written = true;
        changed.delete(entry);
      }
      return fresh.map(({ facts, count, lastAt }) => ({
        ...facts,
        count,
        last_at: count === 1 ? null : lastAt,
      }));
    },
    /** Counts that have changed since their entries were written. */
    takeCounts: (): AuditCount[] => {
      const written = [...changed].filter((entry) => entry.written);
      changed = new Set([...changed].filter((entry) => !entry.written));
      return written.map(({ facts, count, lastAt }) => ({
        requestId: facts.request_id,
        count,
        lastAt,
      }));
    },
  };
}

/**
 * Calls with the same name are counted together. Ids that a refused call names are not part of it:
 * they may be made up.
 */
function nameOf({ project_id, public_key, call, status, code, service_id }: AuditFacts): string {
  return JSON.stringify([
    project_id,
    public_key,
    call,
    status,
    code ?? null,
    code == null ? service_id : null,
  ]);
}

/** At most one line in this time: a caller that causes drops must not fill the control log. */
const EVERY_MS = 60_000;

/** Counts what was dropped, and logs the count once a minute. */
export function createDropLog(log: Pick<FastifyBaseLogger, 'warn'>, message: string) {
  let dropped = 0;
  let timer: NodeJS.Timeout | undefined;
  const write = (): void => {
    clearTimeout(timer);
    timer = undefined;
    if (dropped > 0) log.warn({ dropped }, message);
    dropped = 0;
  };
  return {
    count: (): void => {
      dropped += 1;
      timer ??= setTimeout(write, EVERY_MS).unref();
    },
    /** Logs what was not logged yet. */
    close: write,
  };
}

/** The names in a request: the key in its header, and the project and resource in its path. */
export type PresentedKey = { publicKey: string; secretKey: string };

/** The two halves of the key in an Authorization header; null when there are none. */
export function parseAuthorization(header: string | undefined): PresentedKey | null {
  const [, scheme, value] = /^(Bearer|Basic) +([^ ]+) *$/i.exec(header ?? '') ?? [];
  if (scheme === undefined || value === undefined) return null;
  const pair =
    scheme.toLowerCase() === 'basic' ? Buffer.from(value, 'base64').toString('utf8') : value;
  const colon = pair.indexOf(':');
  const publicKey = pair.slice(0, colon);
  // An impossible key is not searched for: PostgreSQL refuses a text with a NUL.
  if (colon < 1 || !/^[A-Za-z0-9_-]{1,64}$/.test(publicKey)) return null;
  return { publicKey, secretKey: pair.slice(colon + 1) };
}

const PARAMETERS = ['project_id', 'service_id', 'vpc_id', 'peering_id', 'replica_set_id'] as const;

/** The project, and what else of ours, that a path names. */
export function parametersOf(
  params: unknown,
): Partial<Record<(typeof PARAMETERS)[number], string>> {
  if (typeof params !== 'object' || params === null) return {};
  const entries = PARAMETERS.map((name) => [name, Reflect.get(params, name)] as const);
  return Object.fromEntries(entries.filter(([, value]) => typeof value === 'string'));
}
