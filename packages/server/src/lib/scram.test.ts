import { createHash, createHmac, pbkdf2Sync } from 'node:crypto';
import { expect, test } from 'vitest';
import { scramVerifier } from './scram.ts';

const FORM =
  /^SCRAM-SHA-256\$(\d+):([A-Za-z0-9+/]+={0,2})\$([A-Za-z0-9+/]+={0,2}):([A-Za-z0-9+/]+={0,2})$/;

/**
 * What a server does with a verifier (RFC 5802 section 3): would a client that knows this password
 * get in, and trust the server?
 */
function accepts(verifier: string, password: string): boolean {
  const [, iterations = '', salt = '', storedKey = '', serverKey = ''] = FORM.exec(verifier) ?? [];
  const salted = pbkdf2Sync(
    password,
    Buffer.from(salt, 'base64'),
    Number(iterations),
    32,
    'sha256',
  );
  const clientKey = createHmac('sha256', salted).update('Client Key').digest();
  return (
    createHash('sha256').update(clientKey).digest('base64') === storedKey &&
    createHmac('sha256', salted).update('Server Key').digest('base64') === serverKey
  );
}

test('a verifier has the form of PostgreSQL, with 16 bytes of salt and 4096 rounds', async () => {
  const [, iterations, salt, storedKey, serverKey] =
    FORM.exec(await scramVerifier('correct horse')) ?? [];
  expect(iterations).toBe('4096');
  expect(Buffer.from(salt ?? '', 'base64')).toHaveLength(16);
  expect(Buffer.from(storedKey ?? '', 'base64')).toHaveLength(32);
  expect(Buffer.from(serverKey ?? '', 'base64')).toHaveLength(32);
});

test('the password fits, others do not, and two verifiers of one password differ', async () => {
  const [one, two] = await Promise.all([
    scramVerifier('correct horse'),
    scramVerifier('correct horse'),
  ]);
  expect(accepts(one, 'correct horse')).toBe(true);
  expect(accepts(two, 'correct horse')).toBe(true);
  expect(one).not.toBe(two);
  expect(accepts(one, 'correct horsf')).toBe(false);
  expect(accepts(one, 'correct horse ')).toBe(false);
});

/**
 * As RFC 4013 section 3 and PostgreSQL's own src/common/saslprep.c have it: clients prepare before
 * they hash.
 */
const PREPARED: [string, string, string][] = [
  ['plain ASCII stays', 'a"b\'c\\d$e`f', 'a"b\'c\\d$e`f'],
  ['compatibility characters are decomposed', 'ﬁsh-and-Ⅸ', 'fish-and-IX'],
  ['an accent that stands apart joins its letter', 'cafe\u0301-latte', 'caf\u00e9-latte'],
  ['a space that is not ASCII becomes one that is', 'one\u00a0two\u3000six', 'one two six'],
  ['a soft hyphen is dropped', 'I\u00adX-and-more', 'IX-and-more'],
  [
    'what is not in Unicode 3.2 leaves the password as it is, all of it',
    'ﬁsh-🔒-more',
    'ﬁsh-🔒-more',
  ],
  ['so does a character of a private area', 'ﬁsh-\ue000-more', 'ﬁsh-\ue000-more'],
  ['so do both directions of writing in one', 'ﬁsh-\u05d0\u05d1-more', 'ﬁsh-\u05d0\u05d1-more'],
];
test.each(PREPARED)('%s', async (_title, given, prepared) => {
  expect(accepts(await scramVerifier(given), prepared)).toBe(true);
});
