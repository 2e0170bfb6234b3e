import { readdir, readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { inOurWords } from './api-words.ts';

test.each([
  [
    'no service with that id exists: "x"; GET /projects/{project_id}/services lists them',
    'no service with that id exists: "x"; howdah service list shows them',
  ],
  [
    'region_code: found "mars"; allowed: local (GET /projects/{project_id}/regions)',
    '--region: found "mars"; allowed: local (howdah region list)',
  ],
  [
    'cannot drill a service without replicas: give it one first (setHA with replica_count 1)',
    'cannot drill a service without replicas: ' +
      'give it one first (howdah service ha NAME --replicas 1)',
  ],
  [
    'sync_replica_count: found 2 of 1 replicas; allowed: 0 to replica_count',
    '--sync: found 2 of 1 replicas; allowed: 0 to --replicas',
  ],
  [
    'cannot updatePassword a service that is PAUSED: ' +
      'updatePassword is allowed when it is READY; now allowed: start, setHA',
    'cannot set-password a service that is PAUSED: ' +
      'set-password is allowed when it is READY; now allowed: start, ha',
  ],
  [
    'accepted, and not done yet: GET /projects/{project_id}/operations/01jd shows its progress',
    'accepted, and not done yet: howdah operation get 01jd shows its progress',
  ],
  ['the disk is full', 'the disk is full'],
])('%s', (message, words) => {
  expect(inOurWords(message)).toBe(words);
});

const SERVICES = fileURLToPath(new URL('../../server/src/services/', import.meta.url));

test('messages of the services name no call of the API at a shell', async () => {
  const names = (await readdir(SERVICES)).filter((name) => !name.endsWith('.test.ts'));
  const texts = await Promise.all(
    names.map(async (name) => readFile(`${SERVICES}${name}`, 'utf8')),
  );
  const messages = texts
    .flatMap((text) => text.split('\n'))
    .filter((line) => /['`].*\b(GET|POST|PUT|DELETE) [/…]/.test(line));
  expect(messages.length).toBeGreaterThan(5);
  for (const message of messages)
    expect(inOurWords(message)).not.toMatch(/\b(GET|POST|PUT|DELETE) [/…]/);
});

test('fields of a script stay as they are written in it', () => {
  const problem = 'delays_ms.dance: no such field; allowed: setHA, verifyBackup';
  expect(inOurWords(problem)).toBe(problem);
});
