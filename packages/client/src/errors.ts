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
  /** The code of Node or of the operating system, such as `ECONNREFUSED`; null: there is none. */
  readonly code: string | null;

  constructor(url: string, cause: unknown) {
    const { code, text } = rootOf(cause);
    const why = code === null ? text : reasonOf(code, new URL(url), text);
    super(`no answer from ${new URL(url).origin}: ${why}`, { cause });
    this.name = 'NoAnswerError';
    this.code = code;
  }

  /** Whether another try gets the same: the two ends do not fit together. */
  get isFinal(): boolean {
    return this.code !== null && (isOfCertificate(this.code) || NOT_TLS.includes(this.code));
  }
}

/** The innermost error; of several attempts, such as those for IPv6 and IPv4, the first. */
function rootOf(error: unknown): { code: string | null; text: string } {
  if (!(error instanceof Error)) return { code: null, text: String(error) };
  if (error.cause instanceof Error) return rootOf(error.cause);
  if (error instanceof AggregateError && error.errors.length > 0) return rootOf(error.errors[0]);
  const code: unknown = Reflect.get(error, 'code');
  return { code: typeof code === 'string' ? code : null, text: error.message };
}

const NOT_TLS: readonly string[] = [
  'ERR_SSL_WRONG_VERSION_NUMBER',
  'ERR_SSL_PACKET_LENGTH_TOO_LONG',
  'ERR_SSL_HTTP_REQUEST',
  'EPROTO',
];

/** A certificate of a CA that nobody here trusts. */
const UNTRUSTED: readonly string[] = [
  'SELF_SIGNED_CERT_IN_CHAIN',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
];

const isOfCertificate = (code: string): boolean =>
  UNTRUSTED.includes(code) || /CERT|SIGNATURE|HOSTNAME_MISMATCH/.test(code);

/** Whether the CA of the API's certificate is not known here. */
export function isUntrusted({ code }: NoAnswerError): boolean {
  return code !== null && UNTRUSTED.includes(code);
}

function reasonOf(code: string, { hostname, protocol }: URL, text: string): string {
  if (UNTRUSTED.includes(code))
    return `its certificate is of a CA that is not trusted here (${code})`;
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID' || code === 'HOSTNAME_MISMATCH')
    return `its certificate is not for the name ${hostname} (${text})`;
  if (isOfCertificate(code)) return `its certificate is refused: ${text} (${code})`;
  if (NOT_TLS.includes(code)) return `it speaks http there, not https: TLS failed (${code})`;
  switch (code) {
    case 'ECONNREFUSED':
      return 'nothing listens there (ECONNREFUSED): is the control plane up?';
    case 'ENOTFOUND':
      return `the name ${hostname} is not known (ENOTFOUND)`;
    case 'EAI_AGAIN':
      return `the name ${hostname} cannot be looked up now: no name server answers (EAI_AGAIN)`;
    case 'ETIMEDOUT':
    case 'UND_ERR_CONNECT_TIMEOUT':
      return `it could not be connected in time; a firewall may be in between (${code})`;
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
      return `there is no way to this address from here (${code})`;
    case 'ECONNRESET':
    case 'EPIPE':
    case 'UND_ERR_SOCKET':
    case 'HPE_INVALID_CONSTANT':
      return (
        `the connection ended before there was an answer (${code})` +
        (protocol === 'http:' ? '; if it speaks https, the address begins with https://' : '')
      );
    default:
      return `${text} (${code})`;
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
    text('message') ?? reasonOfForeign(response),
    text('request_id') ?? response.headers.get('X-Request-Id') ?? undefined,
  );
}

/** Why an answer is none of the API. */
export function reasonOfForeign({ status, headers }: Response): string {
  const location = headers.get('Location');
  if (status >= 300 && status < 400 && location !== null)
    return `the server answered ${status}: the API is at ${location}; use that address`;
  const type = headers.get('Content-Type') ?? 'no content';
  return (
    `the server answered ${status} (${type}), which is no answer of the API: ` +
    'is its address right, and is there a proxy in between?'
  );
}
