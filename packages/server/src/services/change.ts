/**
 * The only way to make a change: in one transaction, once for each Idempotency-Key, or not at all
 * for a dry run. The change itself makes all checks, so that a dry run and the change cannot
 * differ.
 */
import type { KitService, OperationKind, Role, Size } from '@howdah/contract';
import type { KeyBounds } from '../domain/service/lifetime.ts';
import type { ServiceSpec } from '../engine/spec.ts';
import { recordAudit, type AuditNote } from '../store/audit-log.ts';
import type { Store } from '../store/database.ts';
import type { Tx } from '../store/tables.ts';
import { claimAnswer, keepAnswer, type CallName, type KeptAnswer } from '../store/kept-answers.ts';
import { serviceSpec } from '../domain/service/spec.ts';
import { lockService } from '../store/services.ts';
import { readOperation } from '../store/operations.ts';

/** The caller of a change, and how it is requested. */
export type Caller = {
  /** The public half of the key. */
  publicKey: string;
  role: Role;
  projectId: string;
  /** The name of the service, as the caller repeats it to confirm the change; null: not given. */
  confirm: string | null;
  /** Whether it is an admin key of the operator project. */
  operates: boolean;
  /** Whether the key changes nothing but what it has made. */
  forkOnly: boolean;
  /** The bounds of the services that the key makes. */
  bounds: KeyBounds;
  /** Whether a size is accepted that has no room on its machine. */
  force: boolean;
  /** Whether the change is rolled back after it was checked. */
  dryRun: boolean;
  /** The Idempotency-Key of the call; null: it has none. */
  once: Once | null;
  /** The entry of the audit log. */
  audit: AuditNote | null;
};

/**
 * A call that is made once: the key of its answer, and the encryption that hides the answer in
 * the metadata database.
 */
export type Once = CallName & { seal: (outcome: Outcome) => Buffer };

/** The outcome of a change: everything that its answer needs. */
export type Outcome = {
  /** The operation of the change; null: nothing to do, or not a change of a service. */
  operationId: string | null;
  /** The answer's body, as JSON text. */
  doc?: string;
  /** The answer's body in words, in place of `doc`. */
  message?: string;
  /** A dry run says this beside the steps. */
  note?: string;
  /** The answer says this beside its body, in the header `Warning`. */
  warning?: string;
  /** A dry run lists these beside the steps. */
  services?: readonly KitService[];
  /** The size before a resize: the steps of a dry run depend on it. */
  sizeBefore?: Size;
  /** Added to the document of the answer to a delete: for how long it can be restored. */
  restoreNote?: string;
  /** Added to the document of the answer, and stored nowhere. */
  initialPassword?: string;
};

/** Thrown when a call with this Idempotency-Key was answered before: the change is not repeated. */
export class AnsweredBefore extends Error {
  readonly answer: KeptAnswer;

  constructor(answer: KeptAnswer) {
    super('the call was answered before');
    this.answer = answer;
  }
}

/**
 * What a change would begin. `spec`: the service after it; `running`: whether its server, or that
 * of its spare, runs now.
 */
export type Planned = {
  kind: OperationKind;
  /** The code of its region. */
  region: string;
  spec: ServiceSpec;
  running: boolean;
  sizeBefore: Size;
  /** The parts of the service that its result would not have, in words; null: none. */
  notCarried: readonly string[] | null;
};

/** The notes of a dry run, beside its steps. */
export type DryRunNotes = Pick<Outcome, 'note' | 'services'>;

/** Thrown to end a dry run: the transaction is rolled back. */
export class DryRun extends Error {
  readonly planned: Planned | null;
  readonly said: DryRunNotes;

  constructor(planned: Planned | null, said: DryRunNotes) {
    super('a dry run');
    this.planned = planned;
    this.said = said;
  }
}

/**
 * Makes a change.
 *
 * @param work checks and records the change; without other effects if `caller.dryRun`
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
    if (caller.dryRun) throw new DryRun(await plannedBy(tx, outcome), outcome);
    await recordAudit(tx, caller.audit, outcome.operationId);
    if (once !== null) await keepAnswer(tx, once, once.seal(outcome));
    return outcome;
  });
}

/** The outcome of a change that begins no operation: a document answers it. */
export const answerWith = (document: object): Outcome => ({
  operationId: null,
  doc: JSON.stringify(document),
});

/** Replaces the kept answer of a change, after a wait for its effect. */
export async function amendAnswer(store: Store, { once }: Caller, outcome: Outcome): Promise<void> {
  if (once !== null) await keepAnswer(store.db, once, once.seal(outcome));
}

async function plannedBy(tx: Tx, { operationId, sizeBefore }: Outcome): Promise<Planned | null> {
  const operation = operationId === null ? null : await readOperation(tx, operationId);
  const locked = operation === null ? null : await lockService(tx, operation.service_id);
  if (operation === null || locked === null) return null;
  const spec = serviceSpec(locked.service);
  return {
    kind: operation.kind,
    region: locked.service.region_code,
    spec,
    running: locked.service.reachable,
    sizeBefore: sizeBefore ?? spec.size,
    notCarried: operation.not_carried,
  };
}
