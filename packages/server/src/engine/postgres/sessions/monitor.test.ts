import { EventEmitter, once } from 'node:events';
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createMonitor, type ServerProcesses } from './monitor.ts';

const PORT = 5432;

/** Servers of a test have no processes. */
const PROCESSES: ServerProcesses<unknown> = {
  isFrozen: () => Promise.resolve(false),
  ofServer: () => Promise.resolve([]),
  ofSession: () => Promise.resolve([]),
};

/** A message of PostgreSQL's protocol: its type, its length, its contents. */
function message(type: string, contents: Buffer): Buffer {
  const length = Buffer.alloc(4);
  length.writeInt32BE(contents.length + 4);
  return Buffer.concat([Buffer.from(type), length, contents]);
}
const READY = message('Z', Buffer.from('I'));
const AUTHENTICATED = Buffer.concat([message('R', Buffer.alloc(4)), READY]);
const COMPLETE = Buffer.concat([message('C', Buffer.from('SELECT 0\0')), READY]);

/** Accepts a session and completes each statement once `allowed` resolves, in order. */
function serve(socket: Socket, allowed: () => Promise<unknown>, statements: string[]): void {
  let started = false;
  let received = Buffer.alloc(0);
  socket.on('data', (data) => {
    received = Buffer.concat([received, data]);
    if (!started) {
      started = true;
      received = Buffer.alloc(0);
      socket.write(AUTHENTICATED);
      return;
    }
    while (received.length >= 5 && received.length > received.readInt32BE(1)) {
      const end = received.readInt32BE(1) + 1;
      const [type, text] = [received.toString('utf8', 0, 1), received.toString('utf8', 5, end - 1)];
      received = received.subarray(end);
      if (type !== 'Q') continue;
      statements.push(text);
      void allowed().then(() => socket.write(COMPLETE));
    }
  });
  socket.on('error', () => undefined);
}

test('statements and heartbeats of a busy connection wait for each other, in order', async () => {
  const top = await realpath(await mkdtemp(join(tmpdir(), 'howdah-monitor-')));
  const paths = { socket: top };
  const statements: string[] = [];
  const gate = new EventEmitter();
  const opened = once(gate, 'open');
  const server = createServer((socket) => serve(socket, () => opened, statements));
  const monitor = createMonitor(() => undefined, PROCESSES);
  const warnings: Error[] = [];
  const note = (warning: Error): void => void warnings.push(warning);
  process.on('warning', note);
  try {
    await once(server.listen(join(top, `.s.PGSQL.${PORT}`)), 'listening');
    await monitor.connect('one', paths, PORT, { everyMs: 1, deadlineMs: 60_000 });
    const texts = ['select 11', 'select 12', 'select 13', 'select 14'];
    const answers = texts.map((text) => monitor.query('one', text));
    await expect.poll(() => statements.length).toBe(1);
    gate.emit('open');
    expect(await Promise.all(answers)).toEqual([[], [], [], []]);
    const others = statements.filter((text) => text !== 'select 1');
    expect(others).toEqual(texts);
    await expect.poll(() => statements.filter((text) => text === 'select 1').length).not.toBe(0);
    expect(warnings).toEqual([]);
  } finally {
    process.off('warning', note);
    monitor.close();
    server.close();
    await rm(top, { recursive: true });
  }
});

test('a pause of the control plane is no silence of a server', async () => {
  const top = await realpath(await mkdtemp(join(tmpdir(), 'howdah-monitor-')));
  const statements: string[] = [];
  const deadlineMs = 200;
  let pauses = 0;
  const answered = new EventEmitter();
  const pauseAfterAnswer = async (): Promise<void> => {
    if (pauses++ > 0) return;
    setImmediate(() => {
      const endMs = performance.now() + 2 * deadlineMs;
      while (performance.now() < endMs);
      answered.emit('paused');
    });
  };
  const server = createServer((socket) => serve(socket, pauseAfterAnswer, statements));
  const reported: string[] = [];
  const monitor = createMonitor((id) => reported.push(id), PROCESSES);
  try {
    await once(server.listen(join(top, `.s.PGSQL.${PORT}`)), 'listening');
    const paused = once(answered, 'paused');
    const paths = { socket: top };
    await monitor.connect('one', paths, PORT, { everyMs: 1, deadlineMs });
    await paused;
    const before = statements.length;
    await expect.poll(() => statements.length).toBeGreaterThan(before);
    expect(reported).toEqual([]);
    expect(monitor.silentMs('one')).toBe(null);
  } finally {
    monitor.close();
    server.close();
    await rm(top, { recursive: true });
  }
});

test('a server that does not answer is reported', async () => {
  const top = await realpath(await mkdtemp(join(tmpdir(), 'howdah-monitor-')));
  const never = new Promise<void>(() => undefined);
  const server = createServer((socket) => serve(socket, () => never, []));
  const reported: string[] = [];
  const monitor = createMonitor((id) => reported.push(id), PROCESSES);
  try {
    await once(server.listen(join(top, `.s.PGSQL.${PORT}`)), 'listening');
    const paths = { socket: top };
    await monitor.connect('one', paths, PORT, { everyMs: 1, deadlineMs: 50 });
    await expect.poll(() => reported).toEqual(['one']);
    expect(monitor.silentMs('one')).toBeGreaterThanOrEqual(50);
  } finally {
    monitor.close();
    server.close();
    await rm(top, { recursive: true });
  }
});

test('the death of a server is reported at once, and the end of its watch is not', async () => {
  const top = await realpath(await mkdtemp(join(tmpdir(), 'howdah-monitor-')));
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    serve(socket, () => Promise.resolve(), []);
  });
  const reported: string[] = [];
  const monitor = createMonitor((id) => reported.push(id), PROCESSES);
  try {
    await once(server.listen(join(top, `.s.PGSQL.${PORT}`)), 'listening');
    const paths = { socket: top };
    // No heartbeat finds it: only the end of the session shows the death.
    const heartbeat = { everyMs: 3_600_000, deadlineMs: 60_000 };
    await monitor.connect('dies', paths, PORT, heartbeat);
    await monitor.connect('is stopped', paths, PORT, heartbeat);
    monitor.forget('is stopped');
    for (const socket of sockets) socket.destroy();
    await expect.poll(() => reported).toEqual(['dies']);
    expect(monitor.isConnected('dies')).toBe(false);
  } finally {
    monitor.close();
    server.close();
    await rm(top, { recursive: true });
  }
});
