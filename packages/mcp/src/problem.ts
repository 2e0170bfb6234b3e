/** Errors for agents: what went wrong, and what to try next. */
import { messageOf } from '@howdah/contract/thrown';
import { HowdahError, NoAnswerError } from '@howdah/client';

/**
 * A code for programs. REFUSED: by a rule of the tools. AMBIGUOUS: several things have
 * the name. STATEMENT_FAILED: PostgreSQL refused a statement. DECLINED: the user said no.
 */
export type ProblemCode =
  | 'REFUSED'
  | 'FORBIDDEN'
  | 'NOT_FOUND'
  | 'AMBIGUOUS'
  | 'STATEMENT_FAILED'
  | 'DECLINED';

/** A refusal of the tools themselves. */
export class Problem extends Error {
  readonly tryNext: string;
  readonly code: ProblemCode;
  readonly facts: Readonly<Record<string, unknown>>;

  /** @param facts further fields of the result, such as the things that have a name */
  constructor(
    message: string,
    tryNext: string,
    code: ProblemCode = 'REFUSED',
    facts: Readonly<Record<string, unknown>> = {},
  ) {
    super(message);
    this.tryNext = tryNext;
    this.code = code;
    this.facts = facts;
  }
}

export type ExplainedProblem = { code: string; message: string; try_next: string };

/** The advice for the agent, by the error code of the API. */
const AFTER_CODE: Record<string, string> = {
  INVALID_REQUEST: 'correct the field that the message names',
  INVALID_STATE:
    'get_service shows its status, list_operations what is running; ' +
    'wait_for_operation waits for it',
  UNAUTHORIZED:
    'the key is wrong, expired or revoked: ask the user for another one (howdah key create)',
  FORBIDDEN:
    'whoami shows what this key may do. Do not look for a way around it: ask the user. ' +
    'A fork (fork_service) can be changed by most keys',
  NOT_FOUND:
    'list_services shows services, list_services with deleted: true those that can be ' +
    'restored, list_operations operations',
  CONFLICT: 'get_service shows the current state',
  UNAVAILABLE_HERE:
    'report to the user what list_regions shows: ' +
    'what this installation can do, and the command that adds the rest',
  LIMIT_EXCEEDED:
    'get_usage shows limits; delete forks that nobody needs (list_services), ' +
    'or ask the user for more',
  RATE_LIMITED: 'wait a minute',
  UNAVAILABLE: 'try again in a second; if the error persists, get_service and get_logs show why',
};

/** The advice for the agent, by the SQLSTATE of a statement. */
const AFTER_SQLSTATE: Record<string, string> = {
  '25006':
    'statements are read-only here. To try a change, fork_service, ' +
    'then execute or apply_migration on the fork',
  '42501':
    'the role that runs statements reads data and does nothing else. ' +
    'To do more, fork_service, then execute or apply_migration on the fork',
  '42P01': 'db_schema shows the tables; name one with its schema',
  '42703': 'db_schema shows the columns of each table',
  '42601': 'send one statement, in the SQL of PostgreSQL',
  '57014':
    'ask for less, look at the plan with explain, or raise timeout_ms; ' +
    'on_fork: true keeps the load off the service',
};

/** The advice after a statement that PostgreSQL refused; undefined: there is none for its code. */
export const adviceAfter = (sqlstate: string): string | undefined => AFTER_SQLSTATE[sqlstate];

/** The SQLSTATE in an error of the API; undefined: PostgreSQL refused nothing. */
export function sqlstateOf(error: unknown): string | undefined {
  if (!(error instanceof HowdahError)) return undefined;
  return /\(SQLSTATE ([0-9A-Z]{5})/.exec(error.message)?.[1];
}

/** Explains any error to an agent. */
export function explain(error: unknown): ExplainedProblem {
  if (error instanceof Problem)
    return {
      ...error.facts,
      code: error.code,
      message: error.message,
      try_next: error.tryNext,
    };
  if (error instanceof NoAnswerError)
    return {
      code: 'NO_ANSWER',
      message: error.message,
      try_next: 'ask the user to start it: howdah status, howdah up',
    };
  if (error instanceof HowdahError) {
    const next = adviceAfter(sqlstateOf(error) ?? '') ?? AFTER_CODE[error.code];
    const request = error.requestId === undefined ? '' : ` (request ${error.requestId})`;
    return {
      code: error.code,
      message: error.message,
      try_next: next ?? `report this to the user: the control log has the reason${request}`,
    };
  }
  return {
    code: 'FAILED',
    message: messageOf(error),
    try_next: 'report this to the user',
  };
}
