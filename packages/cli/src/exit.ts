/**
 * The exit codes that scripts rely on. docs/cli.md explains them; `--help` of the program lists
 * them.
 */
import type { ErrorCode } from '@howdah/contract/errors';
import { HowdahError, NoAnswerError } from '@howdah/client';
import { EnvironmentError, SettingsError } from '@howdah/client/node';
import { CommanderError } from 'commander';

export const EXIT_CODES = {
  done: 0,
  failed: 1,
  usage: 2,
  notFound: 3,
  refused: 4,
  conflict: 5,
  limit: 6,
  timedOut: 7,
  noConnection: 8,
  unavailableHere: 9,
} as const;
export type Exit = keyof typeof EXIT_CODES;

export const EXIT_MEANINGS: Readonly<Record<Exit, string>> = {
  done: 'done',
  failed: 'the command or the server failed',
  usage: 'usage error: an option, an argument or a value',
  notFound: 'not found',
  refused: 'the key is not allowed to, or you declined',
  conflict: 'the state of the service, or something else, is in the way',
  limit: 'a limit of the project, or of the rate of calls',
  timedOut: '--timeout has passed; the operation continues',
  noConnection: 'the control plane does not answer, or was not found',
  unavailableHere: 'this installation lacks something; the message names the command that adds it',
};

const OF_CODE: Readonly<Record<ErrorCode, Exit>> = {
  INVALID_REQUEST: 'usage',
  INVALID_STATE: 'conflict',
  UNAUTHORIZED: 'refused',
  FORBIDDEN: 'refused',
  NOT_FOUND: 'notFound',
  METHOD_NOT_ALLOWED: 'usage',
  CONFLICT: 'conflict',
  PAYLOAD_TOO_LARGE: 'usage',
  UNSUPPORTED_MEDIA_TYPE: 'usage',
  UNAVAILABLE_HERE: 'unavailableHere',
  LIMIT_EXCEEDED: 'limit',
  RATE_LIMITED: 'limit',
  INTERNAL: 'failed',
  UNAVAILABLE: 'noConnection',
};

/** An error of the command line itself. */
export class Failure extends Error {
  readonly exit: Exit;

  constructor(message: string, exit: Exit = 'failed') {
    super(message);
    this.exit = exit;
  }
}

/** The exit code for an error. */
export function exitOf(error: unknown): Exit {
  if (error instanceof Failure) return error.exit;
  // Help and version end well.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 'done' : 'usage';
  if (error instanceof EnvironmentError) return 'usage';
  if (error instanceof NoAnswerError || error instanceof SettingsError) return 'noConnection';
  if (!(error instanceof HowdahError)) return 'failed';
  if (error.code === 'DRY_RUN') return 'refused';
  return isErrorCode(error.code) ? OF_CODE[error.code] : 'failed';
}

function isErrorCode(code: string): code is ErrorCode {
  return code in OF_CODE;
}
