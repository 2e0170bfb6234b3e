/**
 * Every call that may change something, or reads what is in a database, gets an entry in the audit log, allowed or refused. What begins an operation carries its entry into the
 * transaction that begins it; what changes nothing, or something else, is written before its answer; what was refused in a batch after it.
 */
import { ERROR_CODES, isId, type ErrorCode } from '@howdah/contract';
import type { FastifyBaseLogger, FastifyRequest } from 'fastify';
import { insertAuditEntries, type AuditFacts, type AuditNote } from '../store/audit-log.ts';
import type { Store } from '../store/database.ts';
import type { KeyRow } from '../store/keys.ts';
import type { App } from './app.ts';
import { isChange, parametersOf, parseAuthorization } from './auth.ts';

/** Refusals are written together this often. */
const FLUSH_AFTER_MS = 100;
/** Refusals that wait to be written, and refusals a minute of callers who showed no valid key: more are counted in the log only. */
const MAX_WAITING = 10_000;
const MAX_STRANGERS_A_MINUTE = 60;
const MINUTE_MS = 60_000;

const notes = new WeakMap<FastifyRequest, AuditNote>();

/** What the audit log will say of a request; null: it is none that is told of, or belongs to no project. */
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
  const { config, schema } = request.routeOptions;
  const call = schema?.operationId;
  if ((!isChange(request.method, config) && config.readsData !== true) || call === undefined) return null;
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

/** The status of a route's success: the only one below 300 that it declares. */
function successOf(response: unknown): number {
  const statuses = typeof response === 'object' && response !== null ? Object.keys(response).map(Number) : [];
  return statuses.find((status) => status >= 200 && status < 300) ?? 200;
}

/** Registers the hooks. Before the guard: what that refuses is audited too. */
export function auditCalls(api: App, store: Store, log: FastifyBaseLogger): void {
  let waiting: AuditFacts[] = [];
  let flushing: Promise<void> = Promise.resolve();
  let timer: NodeJS.Timeout | undefined;
  let strangers = { sinceMs: 0, count: 0 };
  let dropped = 0;

  const write = async (entries: readonly AuditFacts[]): Promise<void> => {
    try {
      await insertAuditEntries(store.db, entries);
    } catch (error) {
      log.error({ err: error, entries }, 'entries of the audit log could not be written; they stand here');
    }
  };

  const flush = async (): Promise<void> => {
    clearTimeout(timer);
    timer = undefined;
    const entries = waiting;
    waiting = [];
    if (dropped > 0) log.warn({ dropped }, 'refused calls are not in the audit log: there were too many');
    dropped = 0;
    if (entries.length > 0) await write(entries);
  };

  const isTooMany = (known: boolean): boolean => {
    if (waiting.length >= MAX_WAITING) return true;
    if (known) return false;
    if (Date.now() - strangers.sinceMs > MINUTE_MS) strangers = { sinceMs: Date.now(), count: 0 };
    return ++strangers.count > MAX_STRANGERS_A_MINUTE;
  };

  const queue = (entry: AuditFacts, known: boolean): void => {
    if (isTooMany(known)) dropped++;
    else waiting.push(entry);
    timer ??= setTimeout(() => {
      flushing = flush();
    }, FLUSH_AFTER_MS);
  };

  api.addHook('onSend', async (request, reply, payload) => {
    const note = auditNoteOf(request);
    if (note === null) return;
    const key: KeyRow | undefined = request.key;
    if (reply.statusCode >= 400)
      queue({ ...note.facts, at: new Date(), status: reply.statusCode, code: codeOf(payload) }, key !== undefined);
    // Of what was only asked about nothing is told: nothing came of it.
    else if (!note.recorded && request.change?.dryRun !== true) {
      const operation = reply.getHeader('Operation-Id');
      await write([{ ...note.facts, status: reply.statusCode, operation_id: typeof operation === 'string' ? operation : null }]);
    }
  });
  api.addHook('onClose', async () => {
    await flushing;
    await flush();
  });
}

/** The code in the body of an error. */
function codeOf(payload: unknown): ErrorCode {
  const body: unknown = typeof payload === 'string' ? JSON.parse(payload) : null;
  const code: unknown = typeof body === 'object' && body !== null ? Reflect.get(body, 'code') : null;
  return ERROR_CODES.find((known) => known === code) ?? 'INTERNAL';
}
