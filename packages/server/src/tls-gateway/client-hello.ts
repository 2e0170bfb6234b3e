/**
 * Reads the name of the server that a TLS client asks for. It is input: a client hello may be split
 * over any number of TLS records and segments.
 * https://www.rfc-editor.org/rfc/rfc8446#section-4.1.2
 */

/** The longest client hello that is read, with the heads of the TLS records. */
export const MAX_HELLO_BYTES = 16 * 1024;

/** `more`: it is not complete. `hello`: the name in lower case; null: it has none. */
export type Hello =
  | Readonly<{ kind: 'more' }>
  | Readonly<{ kind: 'refused'; why: 'not_tls' | 'too_long' }>
  | Readonly<{ kind: 'hello'; name: string | null }>;

const RECORD_HEAD = 5;
const MESSAGE_HEAD = 4;
const HANDSHAKE = 22;
const CLIENT_HELLO = 1;
const SERVER_NAME = 0;
const HOST_NAME = 0;
/** RFC 8446, section 5.1. */
const MAX_RECORD = 2 ** 14;
/** The most of one client hello: clients need one, or a few. */
export const MAX_RECORDS = 64;

const MORE: Hello = { kind: 'more' };
const NOT_TLS: Hello = { kind: 'refused', why: 'not_tls' };
const TOO_LONG: Hello = { kind: 'refused', why: 'too_long' };

/** @param bytes all that the client has sent since TLS began */
export function readClientHello(bytes: Buffer): Hello {
  const handshake = handshakeIn(bytes);
  if (!Buffer.isBuffer(handshake)) return handshake;
  const incomplete = bytes.length >= MAX_HELLO_BYTES ? TOO_LONG : MORE;
  if (handshake.length === 0) return incomplete;
  if (handshake[0] !== CLIENT_HELLO) return NOT_TLS;
  if (handshake.length < MESSAGE_HEAD) return incomplete;
  const length = handshake.readUIntBE(1, 3);
  if (length > MAX_HELLO_BYTES) return TOO_LONG;
  if (handshake.length < MESSAGE_HEAD + length) return incomplete;
  try {
    const hello = createCursor(handshake.subarray(MESSAGE_HEAD, MESSAGE_HEAD + length));
    return { kind: 'hello', name: nameIn(hello) };
  } catch (error) {
    if (error instanceof RangeError) return NOT_TLS;
    throw error;
  }
}

/**
 * The part of the first message that has come. A hostile client sends many TLS records with little
 * in each.
 */
function handshakeIn(bytes: Buffer): Buffer | Hello {
  const message = Buffer.alloc(bytes.length);
  let filled = 0;
  let records = 0;
  for (let at = 0; at < bytes.length;) {
    if (bytes[at] !== HANDSHAKE) return NOT_TLS;
    if (bytes.length > at + 1 && bytes[at + 1] !== 3) return NOT_TLS;
    if (bytes.length < at + RECORD_HEAD) break;
    const length = bytes.readUInt16BE(at + 3);
    if (length === 0 || length > MAX_RECORD) return NOT_TLS;
    records += 1;
    if (records > MAX_RECORDS) return TOO_LONG;
    const end = at + RECORD_HEAD + length;
    filled += bytes.copy(message, filled, at + RECORD_HEAD, end);
    at = end;
    // Records after the message are of no interest.
    if (filled >= MESSAGE_HEAD && filled >= MESSAGE_HEAD + message.readUIntBE(1, 3)) break;
  }
  return message.subarray(0, filled);
}

type Cursor = Readonly<{
  isAtEnd: () => boolean;
  /** @throws RangeError beyond the end, as all of these */
  number: (bytes: 1 | 2) => number;
  /** A part whose length is in front of it. @param head the bytes of the length */
  part: (head: 1 | 2) => Buffer;
  skip: (bytes: number) => void;
}>;

function createCursor(bytes: Buffer): Cursor {
  let at = 0;
  const take = (count: number): Buffer => {
    if (at + count > bytes.length) throw new RangeError('the client hello ends too early');
    at += count;
    return bytes.subarray(at - count, at);
  };
  const number = (count: 1 | 2): number => take(count).readUIntBE(0, count);
  return {
    isAtEnd: () => at === bytes.length,
    number,
    part: (head) => take(number(head)),
    skip: (count) => void take(count),
  };
}

function nameIn(hello: Cursor): string | null {
  hello.skip(2 + 32); // version and random
  hello.part(1); // session
  hello.part(2); // cipher suites
  hello.part(1); // compression
  if (hello.isAtEnd()) return null;
  const extensions = createCursor(hello.part(2));
  while (!extensions.isAtEnd()) {
    const type = extensions.number(2);
    const body = extensions.part(2);
    if (type === SERVER_NAME) return hostNameIn(createCursor(createCursor(body).part(2)));
  }
  return null;
}

function hostNameIn(names: Cursor): string | null {
  while (!names.isAtEnd()) {
    const type = names.number(1);
    const name = names.part(2);
    if (type === HOST_NAME) return name.toString('latin1').toLowerCase();
  }
  return null;
}
