/** The isolation of services that this machine offers, and that asking changes nothing. */
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { isolationNote } from './machine.ts';
import { makeRegistry, whyNoUsers } from './users.ts';

const sandbox = { way: 'mounts', note: 'a view of its own' } as const;
const egress = { refused: true, note: 'connects to nobody' };
const open = { refused: false, note: 'connects to everybody' };
const none = { way: 'none', note: 'sees the whole machine' } as const;

test('the text about isolation names each part that is missing, once', () => {
  expect(isolationNote(null, sandbox, egress)).toMatch(
    /^each service runs as an operating system user of its own[^;]*$/,
  );
  expect(isolationNote(null, sandbox, open)).toMatch(/of its own.*; connects to everybody$/);
  expect(isolationNote('not root', sandbox, open)).toMatch(/all: not root; connects to everybody$/);
  expect(isolationNote('not root', none, open)).toMatch(
    /all: not root; sees the whole machine; connects to everybody$/,
  );
  expect(isolationNote(none.note, none, open)).toMatch(
    /all: sees the whole machine; connects to everybody$/,
  );
  // The rules go by users that no service has then.
  expect(isolationNote('not root', sandbox, egress)).toMatch(
    /all: not root; a server can connect to whatever this machine reaches/,
  );
});

test('checking whether services can have own users does not create the registry', async () => {
  const home = await mkdtemp(join(tmpdir(), 'howdah-users-'));
  try {
    const directory = join(home, 'none', 'users');
    const own = process.getuid?.() ?? 0;
    expect(whyNoUsers(directory, [own, own])).toBeNull();
    expect(existsSync(join(home, 'none'))).toBe(false);
    expect(makeRegistry(directory)).toBeNull();
    expect(existsSync(directory)).toBe(true);
  } finally {
    await rm(home, { recursive: true, force: true });
  }
});
