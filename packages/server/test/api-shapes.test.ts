/**
 * Every call of the API as clients of Tiger Cloud use it: statuses, shapes, spellings, headers. The
 * tests are in the imported modules; the last two check all their calls.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  bodies,
  cloud,
  haproxy,
  passwords,
  pgBackRest,
  pgbouncer,
  routes,
  seen,
  setUp,
  tearDown,
} from './api-shapes-calls.ts';
import './api-shapes-create.ts';
import './api-shapes-changes.ts';
import './api-shapes-service.ts';
import './api-shapes-metrics.ts';
import './api-shapes-installation.ts';
import './api-shapes-repositories.ts';
import './api-shapes-regions.ts';

beforeAll(setUp);
afterAll(tearDown);

/** Operations that answer with a stream, which events.test.ts and audit-log.test.ts read. */
const STREAMS = ['streamEvents', 'exportAudit'];

/** Operations that only an installation with HAProxy answers well. */
const needsHaproxy = (id: string): boolean =>
  ['switchover', 'drill'].includes(id) || (id.includes('ReplicaSet') && id !== 'listReplicaSets');

/** Operations on a repository, which only an installation with pgBackRest has. */
const needsRepository = (id: string): boolean =>
  id === 'createServiceFromKit' ||
  id === 'getRecoveryKit' ||
  id === 'runBackup' ||
  id === 'addBackupRegion' ||
  (id.includes('Repository') && !id.startsWith('list'));

test('every call of the document was made, and each answer matches the document', () => {
  const successes = [...seen]
    .filter((entry) => / 20\d$/.test(entry))
    .map((entry) => entry.replace(/ .*/, ''));
  const possible = routes
    .map(({ operationId }) => operationId)
    .filter(
      (id) =>
        (pgbouncer !== null || !id.startsWith('enablePooler')) &&
        (haproxy !== null || !needsHaproxy(id)) &&
        (pgBackRest !== null || !needsRepository(id)) &&
        // This endpoint needs services with operating system users of their own.
        (process.getuid?.() === 0 || id !== 'createServiceFromKit'),
    )
    // There is one region, and a repository has the backups of all services.
    .filter((id) => !STREAMS.includes(id) && !['moveService', 'removeBackupRegion'].includes(id));
  expect(successes.toSorted()).toEqual(possible.toSorted());
});

test(
  'no password is in an answer other than that to a create, or in a file of the installation',
  { tags: 'slow' },
  async () => {
    expect(passwords.length).toBeGreaterThan(8);
    const answered = bodies.join('\n');
    for (const password of passwords) expect(answered).not.toContain(password);
    // One pass over all files for all passwords: there are gigabytes of them.
    const words = passwords.flatMap((password) => ['-e', password]);
    const grep = promisify(execFile)('grep', ['-r', '-F', '-a', '-o', ...words, cloud.home]);
    // Code 1: found nothing. The error shows what was found where.
    await expect(grep, 'found in a file').rejects.toMatchObject({ code: 1 });
  },
);
