/**
 * Encrypts secrets that have to be stored and read again, such as those of webhooks, repositories
 * and clusters: the metadata database alone, or a copy of it, reveals none of them. The key is a
 * file of the installation.
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { writeDurably } from './durable-files.ts';
import { isErrno } from './processes.ts';

const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** open: null for a text that was sealed with another key, or changed since. */
export type Sealer = { seal: (text: string) => Buffer; open: (sealed: Buffer) => string | null };

/** @param path of the key, which is created if it is missing */
export async function openSealer(path: string): Promise<Sealer> {
  const key = await readKey(path);
  return {
    seal: (text) => {
      const nonce = randomBytes(NONCE_BYTES);
      const cipher = createCipheriv('aes-256-gcm', key, nonce);
      const body = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()]);
      return Buffer.concat([nonce, cipher.getAuthTag(), body]);
    },
    open: (sealed) => {
      const decipher = createDecipheriv('aes-256-gcm', key, sealed.subarray(0, NONCE_BYTES), {
        authTagLength: TAG_BYTES,
      });
      decipher.setAuthTag(sealed.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
      try {
        return Buffer.concat([
          decipher.update(sealed.subarray(NONCE_BYTES + TAG_BYTES)),
          decipher.final(),
        ]).toString('utf8');
      } catch {
        return null;
      }
    },
  };
}

async function readKey(path: string): Promise<Buffer> {
  try {
    const key = Buffer.from(await readFile(path, 'utf8'), 'base64');
    if (key.length !== KEY_BYTES)
      throw new Error(
        `${path}: is not a key of ${KEY_BYTES} bytes in base64; restore it from a backup`,
      );
    return key;
  } catch (error) {
    if (!isErrno(error, 'ENOENT')) throw error;
    const key = randomBytes(KEY_BYTES);
    await writeDurably(path, `${key.toString('base64')}\n`, 0o600);
    return key;
  }
}
