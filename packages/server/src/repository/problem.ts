/**
 * Errors of pgBackRest as sentences with a remedy. Its own texts hold paths, hints for its
 * configuration file and stack traces.
 */
import { RepositoryProblem, type Repository } from './repository.ts';
import { BACKUP_USER } from './pgbackrest.ts';

/** The numbers of pgBackRest's errors (its source: src/build/error/error.yaml). */
export const ERRORS = { stanzaMismatch: 28, fileMissing: 55 } as const;

/** pgBackRest ended with an error. */
export class PgBackRestError extends RepositoryProblem {
  /** Its number; null: a signal ended it. */
  readonly code: number | null;
  /** Its own text, for the control log. */
  readonly output: string;

  constructor(message: string, code: number | null, output: string) {
    super(message);
    this.code = code;
    this.output = output;
  }
}

const CREDENTIALS = [
  /InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied/i,
  /AuthenticationFailed|AuthorizationFailure|authentication failed|invalid_grant/i,
  /40[13] \((Forbidden|Unauthorized)\)/i,
];
const UNREACHABLE = [
  /HostConnectError|unable to (connect|get address)|no route to host|host.*not known/i,
  /connection (refused|reset)|timeout|unexpected eof/i,
];

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
const OF_NETWORK =
  'its server cannot be reached or does not answer; check its address and the network';

/** The meanings of outputs of pgBackRest. The first that matches counts. */
const MEANINGS: readonly (readonly [RegExp[], (repository: Repository) => string])[] = [
  [CREDENTIALS, () => OF_CREDENTIALS],
  [
    [/NoSuchBucket|ContainerNotFound|404 \(Not Found\)/i],
    ({ storage }) => `${containerOf(storage)} does not exist; create it, or correct its name`,
  ],
  [[/certificate|SSL routines|TLS/i], () => OF_CERTIFICATE],
  [
    [/no space left|disk quota|507 \(|storage.*exceeded/i],
    () => 'it is full; make room there, or shorten the retention',
  ],
  [[/permission denied|read-only file system/i], ({ storage }) => permissionOf(storage)],
  [
    [/50[0234] \(|SlowDown|429 \(/i],
    () => 'its server is overloaded or fails at the moment; it is tried again',
  ],
  [UNREACHABLE, () => OF_NETWORK],
  [[/CryptoError|cipher|unable to flush|unable to load info file/i], () => OF_PASSPHRASE],
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
  const meaning = MEANINGS.find(([patterns]) =>
    patterns.some((pattern) => pattern.test(output)),
  )?.[1](repository);
  const unknown =
    code === null
      ? 'pgBackRest was killed; it is tried again'
      : `pgBackRest failed with error ${code}: ${firstLine(output)}`;
  return new PgBackRestError(
    `the repository ${repository.name} cannot ${asked}: ${meaning ?? unknown}`,
    code,
    output,
  );
}

/** The first line of an error, without paths. */
function firstLine(output: string): string {
  const line = /ERROR: \[\d+\]: (.*)/.exec(output)?.[1] ?? output.trim().split('\n')[0] ?? '';
  return line.replaceAll(/(^|[\s'"(])\/[^\s'":,)]+/g, '$1…').slice(0, 300);
}
