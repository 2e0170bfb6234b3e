/** A server that accepts connections and answers nothing. */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { openSuperuserSession } from './superuser.ts';

test('a session is waited for as long as its work says', async () => {
  const socket = await mkdtemp(join(tmpdir(), 'hd-'));
  const server = createServer(() => undefined).listen(join(socket, '.s.PGSQL.1'));
  try {
    await once(server, 'listening');
    const where = { server: { socket }, port: 1, name: 'howdah', answerMs: 20 };
    const sentence = 'PostgreSQL opened no session within 0.02 s';
    await expect(openSuperuserSession(where)).rejects.toThrow(sentence);
    // The version is asked for in a session of its own.
    await expect(openSuperuserSession({ ...where, database: 'tsdb' })).rejects.toThrow(sentence);
  } finally {
    server.close();
    await rm(socket, { recursive: true });
  }
});
