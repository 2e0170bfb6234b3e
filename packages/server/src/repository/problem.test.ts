import { expect, test } from 'vitest';
import { PgBackRestError, problemOf } from './problem.ts';
import type { Repository, Storage } from './repository.ts';

const repository = (storage: Storage): Repository => ({
  id: '1',
  name: 'offsite',
  storage,
  passphrase: 'the passphrase',
});
const S3 = repository({
  type: 's3',
  endpoint: 'https://localhost:1',
  bucket: 'backups',
  region: 'here',
  keyId: 'id',
  key: 'the key',
  uriStyle: 'path',
  ca: null,
  prefix: 'howdah',
});
/** As pgBackRest prints an answer, with headers and names like the texts of other errors. */
const answer = (status: string, code: string): string =>
  [
    `ERROR: [039]: HTTP request failed with ${status}:`,
    '       *** Path/Query ***:',
    '       PUT /quota-of-timeout-TLS/certificate/no space left',
    '       *** Response Headers ***:',
    '       keep-alive: timeout=5',
    '       *** Response Content ***:',
    `       <?xml version="1.0"?><Error><Code>${code}</Code></Error>`,
  ].join('\n');
const PATH = repository({ type: 'path', directory: '/mnt/backups' });

// The texts are those of pgBackRest 2.55 against versitygw and directories.
test.each([
  [
    S3,
    'ERROR: [039]: HTTP request failed with 403 (Forbidden):\n  HEAD /backups/howdah',
    /^the repository offsite cannot take WAL: its server refuses the credentials/,
  ],
  [
    S3,
    'ERROR: [039]: HTTP request failed with 404 (Not Found):\n <Code>NoSuchBucket</Code>',
    /the bucket backups does not exist; create it/,
  ],
  [S3, answer('403 (Forbidden)', 'RequestTimeTooSkewed'), /the clock of this machine.*timedatectl/],
  [S3, answer('403 (Forbidden)', 'QuotaExceeded'), /it is full; make room/],
  [S3, answer('400 (Bad Request)', 'XMinioAdminBucketQuotaExceeded'), /it is full; make room/],
  [S3, answer('400 (Bad Request)', 'RequestTimeout'), /overloaded or fails at the moment/],
  [S3, answer('400 (Bad Request)', 'AuthorizationHeaderMalformed'), /in another region/],
  [
    S3,
    answer('400 (Bad Request)', 'MalformedXML'),
    /its server answers with status 400 MalformedXML$/,
  ],
  [
    S3,
    'ERROR: [039]: HTTP request failed with 400 (x):\n  x-ms-error-code: AuthenticationFailed',
    /refuses the credentials/,
  ],
  [S3, 'ERROR: [101]: [507] Insufficient Storage\n  on 10 retries', /it is full; make room/],
  [
    S3,
    'ERROR: [104]: archive-push command encountered error(s):\n' +
      '  repo1: [ServiceError] [507] Insufficient Storage',
    /it is full; make room/,
  ],
  [S3, 'ERROR: [101]: [503] Service Unavailable\n  on 10 retries', /overloaded or fails/],
  [
    S3,
    "ERROR: [095]: unable to verify certificate presented by 'localhost:1 (127.0.0.1)': [20]",
    /certificate of its server is not valid/,
  ],
  [
    S3,
    "ERROR: [049]: unable to connect to 'localhost:1 (127.0.0.1)': [111] Connection refused",
    /cannot be reached .* check its address/,
  ],
  [
    S3,
    'ERROR: [101]: host [e7] and configured fingerprint (repo-sftp-host-fingerprint) [ab] ' +
      'do not match',
    /has another key than the fingerprint/,
  ],
  [
    PATH,
    "ERROR: [103]:\n repo1: [FormatError] unable to load info file '/mnt/backups/archive/x/a.info'",
    /its passphrase is not the one/,
  ],
  [
    PATH,
    "ERROR: [042]: unable to write '/mnt/backups/a': [28] No space left on device",
    /it is full; make room/,
  ],
  [
    PATH,
    "ERROR: [041]: unable to open file '/mnt/backups/a' for write: [13] Permission denied",
    /mount its disk.* chown -R howdah-backup \/mnt\/backups/,
  ],
])('an error of pgBackRest is a sentence with a remedy: %#', (where, output, expected) => {
  const problem = problemOf(where, 'take WAL', 1, output);
  expect(problem).toBeInstanceOf(PgBackRestError);
  expect(problem.message).toMatch(expected);
  expect(problem.message).not.toMatch(/passphrase$|the key|\n/);
});

test('an unknown error keeps its first line, without paths', () => {
  const output = "ERROR: [077]: something of '/var/tmp/x/y' is odd\n  more";
  expect(problemOf(PATH, 'take WAL', 77, output).message).toMatch(
    /^the repository offsite cannot take WAL: .* failed with error 77: something of '…' is odd$/,
  );
  expect(problemOf(PATH, 'take WAL', null, '').message).toMatch(/was killed; it is tried again$/);
});
