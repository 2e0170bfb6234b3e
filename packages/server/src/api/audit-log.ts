/**
 * Every call that may change something, or reads the contents of a database, gets an entry in the
 * audit log, allowed or refused. The entry of a call that begins an operation is written in the
 * same transaction; that of another accepted change before its answer. Refused calls and statements
 * are counted (audit-counts.ts), and written after the answer.
 */
import { ERROR_CODES, isId, permissionOf, type ErrorCode, type Permission } from '@howdah/contract';
import type { FastifyBaseLogger, FastifyRequest } from 'fastify';
import {
  insertAuditEntries,
  raiseAuditCounts,
  type AuditFacts,
  type AuditNote,
} from '../store/audit-log.ts';
import type { Store } from '../store/database.ts';
import type { KeyRow } from '../store/keys.ts';
import type { App } from './context.ts';
import { createAuditCounts } from './audit-counts.ts';
import { createDropLog } from './dropped.ts';
import { parametersOf, parseAuthorization } from './presented.ts';

/** New entries of refused calls are written together this often, and how often they have been repeated. */
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
