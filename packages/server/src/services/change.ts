/**
 * The one way in which a caller changes anything: in one transaction, once for each Idempotency-Key, or not at all when the caller only
 * asks what would be done. What has to be checked is checked by the change itself, so that asking and doing cannot differ.
 */
import type { OperationKind, Role } from '@howdah/contract';
import type { ServiceSpec } from '../engine/engine.ts';
import { recordAudit, type AuditNote } from '../store/audit-log.ts';
import type { Store } from '../store/database.ts';
import type { Tx } from '../store/tables.ts';
import { claimAnswer, keepAnswer, type CallName, type KeptAnswer } from '../store/kept-answers.ts';
import { serviceSpec } from '../domain/service/spec.ts';
import { lockService } from '../store/services.ts';
import { readOperation } from '../store/operations.ts';

/** Who asks, and how. */
export type Caller = {
  /** The public half of the key. */
  publicKey: string;
  role: Role;
  projectId: string;
  /** Nothing is to be done: only what would be. */
  dryRun: boolean;
  /** The Idempotency-Key of the call; null: it has none. */
  once: Once | null;
  /** What the audit log will say of it. */
  audit: AuditNote | null;
};

/** A call that is made once: the key of its answer, and the encryption that hides the answer from readers of the metadata database. */
export type Once = CallName & { seal: (outcome: Outcome) => Buffer };

/** What became of a change: all that its answer needs. */
export type Outcome = {
  /** The operation that makes it true; null: there is nothing to do, or it is no change of a service. */
  operationId: string | null;
  /** The answer's body, as JSON text. */
  doc?: string;
  /** The answer's body in words, in place of `doc`. */
  message?: string;
  /** Whether CPU and memory stay as they are: a resize of the storage quota alone restarts nothing. */
  keepsSize?: boolean;
  /** Told once: goes into the document of the answer. */
  initialPassword?: string;
};

/** Thrown when a call with this Idempotency-Key has been answered meanwhile: nothing was done again. */
export class AnsweredBefore extends Error {
  readonly answer: KeptAnswer;

  constructor(answer: KeptAnswer) {
    super('the call was answered before');
    this.answer = answer;
  }
}

/** What a change would begin. `spec`: the service as it would be; `running`: whether its server runs already, a spare's too. */
export type Planned = {
  kind: OperationKind;
  spec: ServiceSpec;
  running: boolean;
  keepsSize: boolean;
};

/** Thrown in place of an answer when the caller asked what would be done: everything was taken back. */
export class DryRun extends Error {
  readonly planned: Planned | null;

  constructor(planned: Planned | null) {
    super('a dry run');
    this.planned = planned;
  }
}

/**
 * Makes a change.
 *
 * @param work checks and records it; whatever else it does to the world it must leave when `caller.dryRun`
 * @throws AnsweredBefore, DryRun, and what `work` throws
 */
export async function makeChange<T extends Outcome>(
  store: Store,
  caller: Caller,
  work: (tx: Tx) => Promise<T>,
): Promise<T> {
  const once = caller.dryRun ? null : caller.once;
  return store.db.transaction().execute(async (tx) => {
    const before = once === null ? null : await claimAnswer(tx, once);
    if (before !== null) throw new AnsweredBefore(before);
    const outcome = await work(tx);
    if (caller.dryRun) throw new DryRun(await plannedBy(tx, outcome));
    await recordAudit(tx, caller.audit, outcome.operationId);
    if (once !== null) await keepAnswer(tx, once, once.seal(outcome));
    return outcome;
  });
}

/** Keeps another answer in place of the one that went with the change: what came of waiting for it. */
export async function amendAnswer(store: Store, { once }: Caller, outcome: Outcome): Promise<void> {
  if (once !== null) await keepAnswer(store.db, once, once.seal(outcome));
}

async function plannedBy(
  tx: Tx,
  { operationId, keepsSize = false }: Outcome,
): Promise<Planned | null> {
  const operation = operationId === null ? null : await readOperation(tx, operationId);
  const locked = operation === null ? null : await lockService(tx, operation.service_id);
  if (operation === null || locked === null) return null;
  return {
    kind: operation.kind,
    spec: serviceSpec(locked.service),
    running: locked.service.reachable,
    keepsSize,
  };
}
