import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { expect, test } from 'vitest';
import { EngineUnavailable } from '../engine.ts';
import { openSession, whyFull } from './session.ts';

test.each([
  ['too many connections for role "howdah_reader"', /10 statements run on it already/],
  ['too many connections for database "tsdb"', /connection limit of the database tsdb/],
  ['sorry, too many clients already', /all connections of the server are taken: close some/],
  [
    'remaining connection slots are reserved for roles with the SUPERUSER attribute',
    /all connections of the server are taken: close some/,
  ],
])('a connection refused with "%s" is explained by what is full', (message, told) => {
  expect(whyFull(message)).toMatch(told);
});

/** The parameters with which a session begins, by their names. */
async function startOf(timeoutMs: number): Promise<ReadonlyMap<string, string>> {
  const started: Buffer[] = [];
  const server = createServer((socket: Socket) =>
    socket.on('data', (data) => {
      started.push(data);
      socket.destroy();
    }),
  );
  try {
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const address = Object(server.address());
    const config = async () => ({ host: '127.0.0.1', port: Number(address.port), ssl: false });
    await expect(openSession(Object({ config }), timeoutMs)).rejects.toThrow(EngineUnavailable);
  } finally {
    server.close();
  }
  // The length and the version of the protocol come first.
  const words = Buffer.concat(started).toString('utf8', 8).split('\0');
  return new Map(words.flatMap((word, at) => (at % 2 === 0 ? [[word, words[at + 1] ?? '']] : [])));
}

test('a session begins as the role that reads, in transactions that cannot write', async () => {
  const started = await startOf(1500);
  expect(started.get('user')).toBe('howdah_reader');
  // The owner of the database may have set other values for all its sessions.
  for (const setting of [
    'default_transaction_read_only=on',
    'role=none',
    'local_preload_libraries=',
    'statement_timeout=1500',
  ])
    expect(` ${started.get('options')} `).toContain(` -c ${setting} `);
});
