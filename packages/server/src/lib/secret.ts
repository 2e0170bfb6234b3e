/** Hashes of secrets that are compared, and answers that are sealed with them. */
import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  hash,
  hkdfSync,
  randomBytes,
  timingSafeEqual,
} from 'node:crypto';

/** The stored form of a key's secret half: that is 256 random bits, so no slow hash is needed. */
export function sha256(secret: string): Buffer {
  return hash('sha256', secret, 'buffer');
}

/**
 * Whether a secret is the one with this hash, in a time that does not depend on
 * how much of it is right.
 */
export function isSecret(presented: string, stored: Buffer): boolean {
  return timingSafeEqual(sha256(presented), stored);
}

const SALT_BYTES = 16;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/**
 * Seals the answer to a call with an Idempotency-Key. The encryption key is derived from that and
 * from the secret half of the API key; neither is stored. Idempotency-Keys are often easy to guess;
 * the secret half is not.
 */
export function createSealer(idempotencyKey: string, secretKey: string) {
  const keyFor = (salt: Buffer): Buffer =>
    Buffer.from(hkdfSync('sha256', `${secretKey}\0${idempotencyKey}`, salt, 'howdah answer', 32));
  return {
    /** Finds the answer again, without revealing the Idempotency-Key. */
    lookup: createHmac('sha256', secretKey).update(`name\0${idempotencyKey}`).digest(),
    /**
     * Equal for two calls that ask for the same. It reveals no body: those hold passwords that
     * people chose.
     */
    mac: (text: string): Buffer => createHmac('sha256', secretKey).update(`call\0${text}`).digest(),
    seal: (text: string): Buffer => {
      const salt = randomBytes(SALT_BYTES);
      const nonce = randomBytes(NONCE_BYTES);
      const cipher = createCipheriv('aes-256-gcm', keyFor(salt), nonce);
      return Buffer.concat([
        salt,
        nonce,
        cipher.update(text, 'utf8'),
        cipher.final(),
        cipher.getAuthTag(),
      ]);
    },
    /** @throws Error if it was sealed with other keys, or is incomplete */
    open: (sealed: Buffer): string => {
      const nonceAt = SALT_BYTES + NONCE_BYTES;
      const decipher = createDecipheriv(
        'aes-256-gcm',
        keyFor(sealed.subarray(0, SALT_BYTES)),
        sealed.subarray(SALT_BYTES, nonceAt),
      );
      decipher.setAuthTag(sealed.subarray(-TAG_BYTES));
      return Buffer.concat([
        decipher.update(sealed.subarray(nonceAt, -TAG_BYTES)),
        decipher.final(),
      ]).toString('utf8');
    },
  };
}
export type AnswerSealer = ReturnType<typeof createSealer>;
