import { chown, mkdir, mkdtemp, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { once } from 'node:events';
import { expect, test } from 'vitest';
import { untrustedSocket } from './untrusted-socket.ts';

const TENANTS = [65_533, 65_534] as const;

test("a socket is connected to where it is its owner's, not through a link", async () => {
  const top = await realpath(await mkdtemp(join(tmpdir(), 'howdah-socket-')));
  const [own, foreign] = [join(top, 'own'), join(top, 'foreign')];
  const servers = [own, foreign].map(() => createServer((client) => client.end('hello')));
  try {
    for (const [index, directory] of [own, foreign].entries()) {
      await mkdir(directory, { mode: 0o700 });
      const server = servers[index];
      if (server === undefined) throw new Error('no server');
      await once(server.listen(join(directory, 'socket')), 'listening');
      if (process.getuid?.() !== 0) continue;
      for (const path of [directory, join(directory, 'socket')])
        await chown(path, TENANTS[index] ?? 0, 0);
    }
    const answerOf = async (path: string): Promise<string> => {
      const socket = untrustedSocket().connect(path);
      const [data] = await once(socket, 'data');
      return String(data);
    };
    expect(await answerOf(join(own, 'socket'))).toBe('hello');
    await symlink(join(foreign, 'socket'), join(own, 'link'));
    await writeFile(join(own, 'file'), '');
    await expect(answerOf(join(own, 'link'))).rejects.toThrow('own/link is a symbolic link');
    await expect(answerOf(join(own, 'file'))).rejects.toThrow('own/file is a regular file');
    await expect(answerOf(join(own, 'missing'))).rejects.toThrow('ENOENT');
    await rm(join(own, 'socket'));
    await expect(answerOf(join(own, 'socket'))).rejects.toThrow('ENOENT');
  } finally {
    for (const server of servers) server.close();
    await rm(top, { recursive: true });
  }
});
