/**
 * The attackers of `hostile.test.ts`, in a process of their own: `hostile-attacks.mjs PORT PATH
 * KEY` attacks the API at this port of 127.0.0.1 until it is killed. Its parent gets a message for
 * each outcome: `{ name, end }`, where `end` is the status of an answer, or `end` for a connection
 * that the server closed.
 */
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

const [port, path, key] = process.argv.slice(2);

const head = (method, target, bearer, more) =>
  `${method} ${target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${bearer}\r\n` +
  `Content-Type: application/json\r\n${more}`;
const bodyHead = (more) => head('POST', `${path}/rename`, key, `${more}\r\n\r\n`);

/** The bytes that an attacker sends, piece by piece, for as long as its connection is open. */
const ATTACKS = {
  *silent() {
    yield { bytes: '', waitMs: 60_000 };
  },
  *slowHeaders() {
    yield { bytes: head('GET', path, key, ''), waitMs: 50 };
    for (;;) yield { bytes: 'X-Slow: x\r\n', waitMs: 200 };
  },
  *slowBody() {
    yield { bytes: bodyHead('Content-Length: 60000'), waitMs: 50 };
    for (;;) yield { bytes: ' ', waitMs: 50 };
  },
  *endlessBody() {
    yield { bytes: bodyHead('Transfer-Encoding: chunked'), waitMs: 0 };
    for (;;) yield { bytes: `4000\r\n${' '.repeat(0x4000)}\r\n`, waitMs: 1 };
  },
  *hugeBody() {
    yield { bytes: bodyHead('Content-Length: 1000000000'), waitMs: 0 };
    for (;;) yield { bytes: ' '.repeat(65_536), waitMs: 1 };
  },
  *hugeHeaders() {
    for (;;)
      yield { bytes: head('GET', path, key, `X-Huge: ${'x'.repeat(100_000)}\r\n\r\n`), waitMs: 10 };
  },
  *garbage() {
    for (;;) yield { bytes: '\0\u0001GARBAGE \r\n\r\n'.repeat(50), waitMs: 10 };
  },
  // Answers that nobody reads.
  *deafPipeline() {
    for (;;) yield { bytes: head('GET', path, key, '\r\n').repeat(20), waitMs: 10 };
  },
  // Not faster than a slow server answers: with more than 16 requests that wait, the connection
  // would end before its key is examined.
  *wrongKeys() {
    for (;;) yield { bytes: head('GET', path, `${key.split(':')[0]}:wrong`, '\r\n'), waitMs: 200 };
  },
};

// The parent may have been killed.
process.once('disconnect', () => process.exit());

const seen = new Set();
function see(name, end) {
  if (seen.has(`${name} ${end}`)) return;
  seen.add(`${name} ${end}`);
  process.send({ name, end });
}

/** Attacks from an address; a connection that is closed is opened again. */
async function attack(name, address) {
  for (;;) {
    const socket = connect({ port: Number(port), host: '127.0.0.1', localAddress: address });
    socket.on('error', () => undefined);
    let leaving = false;
    socket.once('close', () => (leaving ? undefined : see(name, 'end')));
    const closed = new Promise((resolve) => socket.once('close', resolve));
    if (name !== 'deafPipeline')
      socket.on('data', (bytes) => {
        for (const [, status] of bytes.toString('latin1').matchAll(/^HTTP\/1\.1 (\d{3}) /gm))
          see(name, Number(status));
      });
    for (const { bytes, waitMs } of ATTACKS[name]()) {
      if (socket.destroyed || socket.writableEnded) break;
      // The server stops reading from a client that does not read: then that client waits, for ever
      // if need be.
      const drained =
        bytes === '' || socket.write(bytes)
          ? null
          : new Promise((resolve) => socket.once('drain', resolve));
      await Promise.race([Promise.all([sleep(waitMs), drained]), closed]);
    }
    leaving = true;
    socket.destroy();
    await sleep(20);
  }
}

/** Wrong keys come from where good calls do: an office, a machine of CI. */
const addressOf = (name, index) => (name === 'wrongKeys' ? '127.0.0.1' : `127.0.1.${index + 1}`);

await Promise.all(
  Object.keys(ATTACKS).flatMap((name, index) =>
    Array.from({ length: name === 'silent' || name === 'slowHeaders' ? 150 : 12 }, () =>
      attack(name, addressOf(name, index)),
    ),
  ),
);
