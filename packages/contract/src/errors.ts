/**
 * Every error code of the API with its HTTP status. The code is for
 * programs, the message for people.
 */
export const ERROR_STATUS = {
  INVALID_REQUEST: 400,
  INVALID_STATE: 400,
  UNAUTHORIZED: 401,
  FORBIDDEN: 403,
  NOT_FOUND: 404,
  METHOD_NOT_ALLOWED: 405,
  CONFLICT: 409,
  PAYLOAD_TOO_LARGE: 413,
  UNSUPPORTED_MEDIA_TYPE: 415,
  UNAVAILABLE_HERE: 422,
  LIMIT_EXCEEDED: 422,
  RATE_LIMITED: 429,
  INTERNAL: 500,
  UNAVAILABLE: 503,
} as const;
export type ErrorCode = keyof typeof ERROR_STATUS;
export const ERROR_CODES: readonly ErrorCode[] = Object.keys(ERROR_STATUS).filter(
  (code): code is ErrorCode => code in ERROR_STATUS,
);

/**
 * An error that a client sees. The message names the field or thing, the value found, the values
 * allowed and the remedy.
 */
export class ApiError extends Error {
  readonly code: ErrorCode;
  readonly details: Readonly<Record<string, unknown>> | undefined;

  constructor(code: ErrorCode, message: string, details?: Readonly<Record<string, unknown>>) {
    super(message);
    this.name = 'ApiError';
    this.code = code;
    this.details = details;
  }
}
