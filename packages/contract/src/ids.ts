/**
 * Ids of services, replica sets, projects, resources and operations: this
 * many characters of `a-z0-9`.
 */
export const ID_LENGTH = 10;

const ALPHABET = 'abcdefghijklmnopqrstuvwxyz0123456789';

/**
 * Turns random bytes into an id. The caller provides the bytes, so that this package does no I/O.
 * Bytes of 252 and more are skipped, or the first letters of the alphabet would be more frequent.
 *
 * @returns the id; null: the bytes did not suffice (call again with more)
 */
export function idFromBytes(bytes: Uint8Array): string | null {
  const usable = [...bytes].filter((byte) => byte < 252).slice(0, ID_LENGTH);
  return usable.length < ID_LENGTH
    ? null
    : usable.map((byte) => ALPHABET.charAt(byte % 36)).join('');
}

/**
 * Whether a string has the shape of an id. Unknown ids of any shape are 404; this only saves a
 * query of the metadata database.
 */
export function isId(value: string): boolean {
  return /^[a-z0-9]{10}$/.test(value);
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Whether a string has the shape of an exporter's id: a UUID, or an id that it had before. */
export function isExporterId(value: string): boolean {
  return UUID.test(value) || isId(value);
}
