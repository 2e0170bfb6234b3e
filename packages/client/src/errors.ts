import type { components } from './generated/api.ts';

/** An error of the API. */
export class HowdahError extends Error {
  /** The status of HTTP. */
  readonly status: number;
  /**
   * For programs: one of the codes of the API, such as `INVALID_STATE`; `UNKNOWN` if the answer did
   * not come from the API.
   */
  readonly code: string;
  /** The control log has it too. */
  readonly requestId: string | undefined;

  constructor(status: number, code: string, message: string, requestId: string | undefined) {
    super(message);
    this.name = 'HowdahError';
    this.status = status;
    this.code = code;
    this.requestId = requestId;
  }
}

/** The call was a dry run, by `dry_run` or by a key that allows nothing else: nothing was done. */
export class DryRunError extends HowdahError {
  /** The change that would be made. */
  readonly answer: components['schemas']['DryRun'];

  constructor(status: number, answer: components['schemas']['DryRun']) {
    super(
      status,
      'DRY_RUN',
      'nothing was done: it was a dry run, as the call or its key asks for',
      undefined,
    );
    this.answer = answer;
  }
}

/**
 * There is no answer: nothing listens, or the connection broke. Whether the call had an effect is
 * not known.
 */
export class NoAnswerError extends Error {
  constructor(url: string, cause: unknown) {
    super(`no answer from ${new URL(url).origin}: is the control plane up?`, { cause });
    this.name = 'NoAnswerError';
  }
}

/** The error for an answer. */
export async function errorOf(response: Response): Promise<HowdahError> {
  const body: unknown = await response.json().catch(() => null);
  const text = (name: string): string | undefined => {
    const value: unknown =
      typeof body === 'object' && body !== null ? Reflect.get(body, name) : undefined;
    return typeof value === 'string' ? value : undefined;
  };
  return new HowdahError(
    response.status,
    text('code') ?? 'UNKNOWN',
    text('message') ?? `the server answered ${response.status}`,
    text('request_id') ?? response.headers.get('X-Request-Id') ?? undefined,
  );
}
