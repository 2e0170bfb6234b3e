import { createHash, createHmac, pbkdf2, randomBytes } from 'node:crypto';
import { promisify } from 'node:util';

/** PostgreSQL's default of `scram_iterations`. */
const ITERATIONS = 4096;

const derive = promisify(pbkdf2);

/**
 * The SCRAM-SHA-256 verifier of a password, as PostgreSQL stores it (RFC 5803; RFC 5802 section 3
 * for the keys). Servers get the verifier and never the password, so that no statement log can
 * contain one.
 */
export async function scramVerifier(password: string): Promise<string> {
  const salt = randomBytes(16);
  const salted = await derive(await prepared(password), salt, ITERATIONS, 32, 'sha256');
  const clientKey = createHmac('sha256', salted).update('Client Key').digest();
  const storedKey = createHash('sha256').update(clientKey).digest('base64');
  const serverKey = createHmac('sha256', salted).update('Server Key').digest('base64');
  return `SCRAM-SHA-256$${ITERATIONS}:${salt.toString('base64')}$${storedKey}:${serverKey}`;
}

/**
 * A password as PostgreSQL and its clients prepare it before hashing: by SASLprep (RFC 4013), or
 * unchanged if it cannot be prepared, such as one with an emoji (src/common/saslprep.c). The tables
 * are loaded when a password needs them.
 */
async function prepared(password: string): Promise<string> {
  if (/^[ -~]*$/.test(password)) return password;
  const { saslprep } = await import('@mongodb-js/saslprep');
  try {
    return saslprep(password);
  } catch {
    return password;
  }
}
