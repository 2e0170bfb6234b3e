/**
 * Errors of pgBackRest as sentences with a remedy. Its own texts hold paths, hints for its
 * configuration file and stack traces.
 */
import { RepositoryProblem, type Repository } from './repository.ts';
import { BACKUP_USER } from './pgbackrest.ts';

/** The numbers of pgBackRest's errors (its source: src/build/error/error.yaml). */
export const ERRORS = { stanzaMismatch: 28, fileMissing: 55 } as const;
/**
 * A checksum, a file or a format that is not the one that a backup names, and what cannot be
 * decrypted: a wrong passphrase is found before any backup is.
 */
const DAMAGED: readonly number[] = [26, 28, 29, ERRORS.fileMissing, 95];

/** pgBackRest ended with an error. */
export class PgBackRestError extends RepositoryProblem {
  /** The error's number; null: a signal ended pgBackRest. */
  readonly code: number | null;
  /** The text of pgBackRest, for the control log. */
  readonly output: string;
  /** Whether another try may succeed: it was killed, or its server was overloaded or away. */
  readonly isPassing: boolean;

  constructor(message: string, code: number | null, output: string, isPassing: boolean) {
    super(message);
    this.code = code;
    this.output = output;
    this.isPassing = isPassing;
  }
}

/** Whether a backup lacks files, or has others: an earlier one may be complete. */
export const isOfDamage = (error: unknown): error is PgBackRestError =>
  error instanceof PgBackRestError && DAMAGED.includes(error.code ?? 0);

/** Whether it says nothing of what the repository has, and another try may succeed. */
export const isPassing = (error: unknown): error is PgBackRestError =>
  error instanceof PgBackRestError && error.isPassing && !isOfDamage(error);

const OF_CERTIFICATE = [
  'the certificate of its server is not valid for its name, has expired, or is signed by an',
  'authority that this machine does not trust; renew it, or give the certificate of the authority',
].join(' ');
const OF_PASSPHRASE = [
  'its contents cannot be decrypted: its passphrase is not the one that it was made with, or its',
  'files are damaged; use the passphrase of its recovery kit (howdah repo add … --kit FILE)',
].join(' ');
const OF_CREDENTIALS =
  'its server refuses the credentials, or they may not read, write and remove; give it valid ones';
const OF_CLOCK = [
  'its server refuses requests by their time: the clock of this machine differs from its own by',
  'more than 15 minutes; set it (timedatectl set-ntp true)',
].join(' ');
const OF_REGION = 'its bucket is in another region; give the region that its server names';
const OF_HOST = [
  'its server has another key than the fingerprint that was given: it may be another machine;',
  'if its key was replaced, give the fingerprint of the new one',
].join(' ');
const OF_SPACE = 'it is full; make room there, or shorten the retention';
const OF_LOAD = 'its server is overloaded or fails at the moment; it is tried again';
const OF_NETWORK =
  'its server cannot be reached or does not answer; check its address and the network';

/** The answer of a server that refused a request: its status, and its own name for the error. */
type Answer = { status: number; code: string };

/**
 * The answer in an output of pgBackRest, which prints requests and answers with all headers and
 * names: no other part of these says what is wrong.
 */
function answerOf(output: string): Answer | null {
  const status = /HTTP request failed with (\d{3})|\[([45]\d{2})\] [A-Z]/.exec(output);
  if (status === null) return null;
  // An answer to HEAD has no content; Azure has the code in a header too.
  const code = /(?:<Code>|x-ms-error-code: |"reason": *")(\w+)/.exec(output);
  return { status: Number(status[1] ?? status[2]), code: code?.[1] ?? '' };
}

/** The names by servers; the first that matches counts, before any status. */
const CODES: readonly (readonly [RegExp, string])[] = [
  [/^RequestTimeTooSkewed$/, OF_CLOCK],
  [/quota|StorageFull/i, OF_SPACE],
  [/^(AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraint)/, OF_REGION],
  [/^(SlowDown|RequestTimeout)$/, OF_LOAD],
  // versitygw answers an unknown key with 404.
  [
    /^(InvalidAccessKeyId|SignatureDoesNotMatch|AuthenticationFailed|XAdminUserNotFound)$/,
    OF_CREDENTIALS,
  ],
];

/** @returns null: unknown */
function meaningOfAnswer({ status, code }: Answer, { storage }: Repository): string | null {
  const known = CODES.find(([pattern]) => pattern.test(code))?.[1];
  if (known !== undefined) return known;
  if (status === 401 || status === 403) return OF_CREDENTIALS;
  if (status === 404)
    return `${containerOf(storage)} does not exist; create it, or correct its name`;
  if (status === 507) return OF_SPACE;
  if (status === 429 || status >= 500) return OF_LOAD;
  return null;
}

/** The meanings of outputs without an answer. The first that matches counts. */
const MEANINGS: readonly (readonly [RegExp, (repository: Repository) => string])[] = [
  [/authentication failed|invalid_grant/i, () => OF_CREDENTIALS],
  [/fingerprint.* do not match/i, () => OF_HOST],
  [/certificate|SSL routines|TLS/i, () => OF_CERTIFICATE],
  [/no space left|disk quota/i, () => OF_SPACE],
  [/permission denied|read-only file system/i, ({ storage }) => permissionOf(storage)],
  [
    /HostConnectError|unable to (connect|get address)|no route to host|host.*not known/i,
    () => OF_NETWORK,
  ],
  [/connection (refused|reset)|timeout|unexpected eof/i, () => OF_NETWORK],
  [/CryptoError|cipher|unable to flush|unable to load info file/i, () => OF_PASSPHRASE],
];

function permissionOf(storage: Repository['storage']): string {
  if (storage.type !== 'path')
    return 'its server does not let it write; give its user the right to';
  const command = `chown -R ${BACKUP_USER} ${storage.directory}`;
  return `the user ${BACKUP_USER} cannot write it; mount its disk, or give it away: ${command}`;
}

function containerOf(storage: Repository['storage']): string {
  switch (storage.type) {
    case 's3':
    case 'gcs':
      return `the bucket ${storage.bucket}`;
    case 'azure':
      return `the container ${storage.container}`;
    case 'sftp':
    case 'path':
      return `the directory ${storage.directory}`;
  }
}

/** @param asked what pgBackRest was to do, as the end of "cannot …" */
export function problemOf(
  repository: Repository,
  asked: string,
  code: number | null,
  output: string,
): PgBackRestError {
  const answer = answerOf(output);
  const meaning =
    answer === null
      ? MEANINGS.find(([pattern]) => pattern.test(output))?.[1](repository)
      : meaningOfAnswer(answer, repository);
  const unknown =
    code === null
      ? 'pgBackRest was killed; it is tried again'
      : answer !== null
        ? `its server answers with status ${answer.status} ${answer.code}`.trimEnd()
        : `pgBackRest failed with error ${code}: ${firstLine(output)}`;
  return new PgBackRestError(
    `the repository ${repository.name} cannot ${asked}: ${meaning ?? unknown}`,
    code,
    output,
    meaning === undefined || meaning === null
      ? code === null
      : [OF_LOAD, OF_NETWORK].includes(meaning),
  );
}

/** The first line of an error, without paths. */
function firstLine(output: string): string {
  const line = /ERROR: \[\d+\]: (.*)/.exec(output)?.[1] ?? output.trim().split('\n')[0] ?? '';
  return line.replaceAll(/(^|[\s'"(])\/[^\s'":,)]+/g, '$1…').slice(0, 300);
}
