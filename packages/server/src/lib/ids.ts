import { randomBytes } from 'node:crypto';
import { idFromBytes } from '@howdah/contract';

/** A new random id: 10 characters of `a-z0-9`. */
export function newId(): string {
  for (;;) {
    const id = idFromBytes(randomBytes(16));
    if (id !== null) return id;
  }
}

/** 32 URL-safe characters from the operating system's generator: 192 bits. */
export function newPassword(): string {
  return randomBytes(24).toString('base64url');
}
