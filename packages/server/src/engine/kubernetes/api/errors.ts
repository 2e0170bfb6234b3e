/** Refusals and failures of the API of a cluster. */
import { messageOf } from '@howdah/contract/thrown';
import { Type } from 'typebox';
import { Value } from 'typebox/value';
import { EngineUnavailable } from '../../engine.ts';

/** https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/ */
const STATUS = Type.Object({
  message: Type.Optional(Type.String()),
  reason: Type.Optional(Type.String()),
});

/** A request was refused, or got no answer. */
export class KubeError extends Error {
  /** The HTTP status; null: there was no answer. */
  readonly status: number | null;
  /** The reason as Kubernetes has it, for example `AlreadyExists`. */
  readonly reason: string | null;

  constructor(message: string, status: number | null, reason: string | null) {
    super(message);
    this.status = status;
    this.reason = reason;
  }

  /** Whether the same request can succeed later, although nobody changes anything. */
  get isTemporary(): boolean {
    return this.status === null || this.status === 429 || this.status >= 500;
  }
}

/** Longest text that is passed on: a webhook may answer with anything. */
const MAX_LENGTH = 500;

/** @param asked what was asked, as the end of "cannot …" */
export function refusalOf(asked: string, status: number, body: string): KubeError {
  const { message, reason } = statusIn(body);
  const why = (message ?? `it answered ${status}`).slice(0, MAX_LENGTH);
  return new KubeError(`the cluster cannot ${asked}: ${why}`, status, reason ?? null);
}

function statusIn(body: string): { message?: string; reason?: string } {
  try {
    const parsed: unknown = JSON.parse(body);
    return Value.Check(STATUS, parsed) ? parsed : {};
  } catch {
    return {}; // a proxy before the API server answers with HTML
  }
}

/** @param cause why there was no answer */
export function noAnswer(asked: string, cause: unknown): KubeError {
  const why = messageOf(cause);
  return new KubeError(`the cluster cannot ${asked}: no answer from its API: ${why}`, null, null);
}

/** @param cause why there is nothing to show to the API */
export function noCredentials(asked: string, cause: unknown): KubeError {
  const why = messageOf(cause);
  return new KubeError(`the cluster cannot ${asked}: no credentials for it: ${why}`, null, null);
}

// Errors of a cluster's API as users read them: they say nothing of the cluster itself.

export const NO_ANSWER = 'its Kubernetes cluster does not answer';

/** @throws EngineUnavailable for an error of the API; every other error as it is */
export function throwUnavailable(error: unknown): never {
  if (!(error instanceof KubeError)) throw error;
  const why =
    error.status === null
      ? NO_ANSWER
      : `its Kubernetes cluster refuses with the status ${error.status}`;
  throw new EngineUnavailable(why, { cause: error });
}
