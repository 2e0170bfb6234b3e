/**
 * Changes as HTTP has them: who asks and how (`?dry_run`, `Idempotency-Key`), and their answers.
 * Every route that changes something hands `callerOf` to a service and its outcome to `answer`;
 * what was kept of an outcome is answered by the same function.
 */
import { ApiError, type DryRunAnswer } from '@howdah/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Regions } from '../engine/regions.ts';
import { createSealer, type AnswerSealer } from '../lib/secret.ts';
import type { Caller, DryRun, Outcome } from '../services/change.ts';
import type { Store } from '../store/database.ts';
import { findAnswer, type KeptAnswer } from '../store/kept-answers.ts';
import { auditNoteOf } from './audit-log.ts';
import { nameOperation, sendNothing, sendText } from './reply.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** How a change is asked for; set on every route that changes something. */
    change?: Change;
  }
}

export type Change = {
  dryRun: boolean;
  /** For the Idempotency-Key; null: the call has none. */
  sealer: AnswerSealer | null;
  /** Names the call: two that ask for the same are named the same. */
  name: Buffer;
  /** The answer to an earlier call with this Idempotency-Key. */
  kept: KeptAnswer | null;
};

/**
 * Looks at how a change is asked for, and whether it was answered before. @throws ApiError for what
 * is asked wrongly
 */
export async function beginChange(
  store: Store,
  request: FastifyRequest,
  secretKey: string,
): Promise<void> {
  const dryRun = request.key.dry_run_only || asksForDryRun(request.query);
  const name = request.method === 'POST' ? idempotencyKeyOf(request) : null;
  const sealer = name === null ? null : createSealer(name, secretKey);
  const kept =
    sealer === null || dryRun
      ? null
      : await findAnswer(store.db, { publicKey: request.key.key, lookup: sealer.lookup });
  request.change = { dryRun, sealer, name: Buffer.alloc(0), kept };
}

/** Names the call by its body as it came: before fields are ignored and defaults are filled in. */
export async function nameCall({ change, method, url, body }: FastifyRequest): Promise<void> {
  if (change == null || change.sealer === null) return;
  change.name = change.sealer.mac(`${method} ${url}\n${JSON.stringify(body ?? null)}`);
}

/** Answers again what was answered before. */
export async function answerAgain(
  { change }: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply | undefined> {
  return change?.kept == null ? undefined : answerKept(reply, change.kept);
}

/** @throws ApiError CONFLICT when it was kept of another call */
export function answerKept(reply: FastifyReply, kept: KeptAnswer): FastifyReply {
  const { change } = reply.request;
  if (change == null || change.sealer === null || !kept.request.equals(change.name))
    throw new ApiError(
      'CONFLICT',
      'Idempotency-Key: was used for another call with this API key; take a new one for each call',
    );
  // Sealed by ourselves, for this very call: it has the shape that was sealed.
  const outcome: Outcome = JSON.parse(change.sealer.open(kept.sealed));
  return answer(reply, outcome);
}

/** Who asks for the change, and how. */
export function callerOf(request: FastifyRequest): Caller {
  const { key, change } = request;
  if (change == null)
    throw new Error(`${request.routeOptions.url} changes something and was not declared to`);
  const { dryRun, sealer, name } = change;
  const once =
    sealer === null
      ? null
      : {
          publicKey: key.key,
          lookup: sealer.lookup,
          request: name,
          seal: (outcome: Outcome) => sealer.seal(JSON.stringify(outcome)),
        };
  return {
    publicKey: key.key,
    role: key.role,
    projectId: key.project_id,
    confirm: confirmedName(request),
    operates: key.operator && key.role === 'admin',
    forkOnly: key.fork_only,
    bounds: {
      serviceTtlSeconds: key.service_ttl_seconds,
      maxTtlSeconds: key.max_service_ttl_seconds,
      autoSuspendSeconds: key.service_auto_suspend_seconds,
      maxServices: key.max_services,
    },
    force: isForced(request),
    dryRun,
    once,
    audit: auditNoteOf(request),
  };
}

/** The answer to a change, as its route declares it: nothing, a message or a document. */
export function answer(reply: FastifyReply, outcome: Outcome): FastifyReply {
  const { operationId, doc, message, warning, initialPassword, restoreNote } = outcome;
  const { status, empty } = declaredAnswer(reply);
  nameOperation(reply, operationId);
  if (warning !== undefined) void reply.header('Warning', `299 - "${warning}"`);
  if (empty) return sendNothing(reply, status);
  if (doc === undefined)
    return sendText(reply, status, JSON.stringify({ message: message ?? underWay(operationId) }));
  // The document is an object: these go in as its last members.
  const more = { initial_password: initialPassword, restore_note: restoreNote };
  const last = Object.entries(more).flatMap(([name, value]) =>
    value === undefined ? [] : [`,"${name}":${JSON.stringify(value)}`],
  );
  return sendText(reply, status, `${doc.slice(0, -1)}${last.join('')}}`);
}

/** The answer to a change that was only asked about. */
export function answerDryRun(
  reply: FastifyReply,
  { planned, said: { note, services } }: DryRun,
  regions: Regions,
): FastifyReply {
  const dryRun: DryRunAnswer = {
    dry_run: true,
    response_status: declaredAnswer(reply).status,
    ...(note === undefined ? {} : { note }),
    ...(planned?.notCarried == null ? {} : { not_carried: [...planned.notCarried] }),
    ...(services === undefined ? {} : { services: [...services] }),
    operation:
      planned === null
        ? null
        : {
            kind: planned.kind,
            service_id:
              planned.kind === 'create' || planned.kind === 'fork' ? null : planned.spec.id,
            steps: regions
              .of(planned.region)
              .engine.lifecycle.plan(
                planned.kind,
                planned.spec,
                planned.running,
                planned.sizeBefore,
              ),
          },
  };
  void reply.header('Dry-Run', 'true');
  return sendText(reply, 200, JSON.stringify(dryRun));
}

/** The success that a route declares. */
function declaredAnswer({ request }: FastifyReply): { status: number; empty: boolean } {
  const declared = Object.entries(request.routeOptions.schema?.response ?? {}).find(([code]) =>
    code.startsWith('2'),
  );
  if (declared === undefined) throw new Error(`${request.routeOptions.url} declares no success`);
  const [code, schema] = declared;
  return {
    status: Number(code),
    empty:
      typeof schema === 'object' && schema !== null && 'type' in schema && schema.type === 'null',
  };
}

const underWay = (operationId: string | null): string =>
  `accepted: GET /projects/{project_id}/operations/${operationId ?? ''} shows its progress`;

/** Some calls have it in their body. */
function confirmedName({ query, body }: FastifyRequest): string | null {
  for (const place of [query, body])
    if (typeof place === 'object' && place !== null && 'confirm' in place) {
      if (typeof place.confirm === 'string') return place.confirm;
      throw new ApiError('INVALID_REQUEST', 'confirm: once, the name of the service');
    }
  return null;
}

/** Calls that take it have it in the query and in their body; the schema of each has its values. */
const isForced = ({ query, body }: FastifyRequest): boolean =>
  [query, body].some(
    (place) =>
      typeof place === 'object' &&
      place !== null &&
      'force' in place &&
      (place.force === 'true' || place.force === true),
  );

/** No other value is accepted: a misspelled parameter must not change anything. */
function asksForDryRun(query: unknown): boolean {
  const found: unknown =
    typeof query === 'object' && query !== null && 'dry_run' in query ? query.dry_run : 'false';
  if (found !== 'true' && found !== 'false')
    throw new ApiError(
      'INVALID_REQUEST',
      `dry_run: found ${JSON.stringify(found)?.slice(0, 64)}; allowed: true, false`,
    );
  return found === 'true';
}

function idempotencyKeyOf({ headers }: FastifyRequest): string | null {
  const found = headers['idempotency-key'];
  if (found === undefined) return null;
  if (typeof found !== 'string' || !/^[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?$/.test(found))
    throw new ApiError(
      'INVALID_REQUEST',
      'Idempotency-Key: allowed are 1 to 255 printable ASCII characters, ' +
        'like a UUID; once a request',
    );
  return found;
}
