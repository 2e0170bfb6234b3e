/** Clients that send little at a time. */
import { Duplex } from 'node:stream';
import { expect, test } from 'vitest';
import { MAX_READS, readHandshake } from './handshake.ts';

test('a client that sends its bytes one by one is refused soon', async () => {
  const client = new Duplex({ read: () => undefined, write: (_chunk, _encoding, done) => done() });
  const begun = readHandshake(client, new AbortController().signal);
  let isOver = false;
  void begun.finally(() => {
    isOver = true;
  });
  let sent = 0;
  for (; !isOver && sent < 10 * MAX_READS; sent += 1) {
    client.push(Buffer.from([[22, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xf0][sent] ?? 0]));
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect(isOver).toBe(true);
  expect(await begun).toEqual({ kind: 'refused', why: 'slow' });
  expect(sent).toBeLessThanOrEqual(MAX_READS + 1);
});
