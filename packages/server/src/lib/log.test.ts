import { mkdtempSync, readFileSync, renameSync, rmSync, statSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterAll, expect, test } from 'vitest';
import { createLogFile, openLog } from './log.ts';

const directory = mkdtempSync(join(tmpdir(), 'howdah-log-'));
afterAll(() => rmSync(directory, { recursive: true }));

const noSpace = Object.assign(new Error('ENOSPC: no space left on device, write'), {
  code: 'ENOSPC',
});

test('lines that find no space are dropped, and counted once there is space again', async () => {
  const path = join(directory, 'full.log');
  let full = false;
  const file = createLogFile(path, 1e6, (fd, text, done) => {
    // A disk that becomes full takes a part of the text first.
    const written = writeSync(fd, full ? text.slice(0, 3) : text);
    setImmediate(() => (full ? done(noSpace, 0) : done(null, written)));
  });
  file.write('"before"\n');
  await nextTurn();
  full = true;
  for (const line of ['"lost 1"\n', '"lost 2"\n']) {
    file.write(line);
    await nextTurn();
    await nextTurn();
  }
  full = false;
  file.write('"after"\n');
  await nextTurn();
  const lines = readFileSync(path, 'utf8').split('\n').filter(Boolean);
  expect(lines[0]).toBe('"before"');
  expect(lines.at(-1)).toBe('"after"');
  expect(JSON.parse(lines.at(-2) ?? '')).toMatchObject({ level: 40, dropped: 2 });
});

test('a file that another program has moved away is followed by another one', async () => {
  const path = join(directory, 'moved.log');
  const file = createLogFile(path, 1e6, (fd, text, done) => done(null, writeSync(fd, text)));
  file.write('"before"\n');
  renameSync(path, `${path}.1`);
  file.reopen();
  file.write('"after"\n');
  expect(readFileSync(path, 'utf8')).toBe('"after"\n');
  expect(readFileSync(`${path}.1`, 'utf8')).toBe('"before"\n');
});

test('the file is put aside while it is written, and both stay small', async () => {
  const path = join(directory, 'large.log');
  const file = createLogFile(path, 1000, (fd, text, done) => done(null, writeSync(fd, text)));
  for (let n = 0; n < 200; n++) file.write(`${JSON.stringify({ n, text: 'x'.repeat(50) })}\n`);
  expect(statSync(path).size).toBeLessThan(1200);
  expect(statSync(`${path}.1`).size).toBeLessThan(1200);
  expect(readFileSync(path, 'utf8')).toContain('"n":199');
});

test('no key and no password is in the log', async () => {
  const { log, path } = openLog(join(directory, 'home'));
  const secrets = { password: 'secret 2', first_verifier: 'secret 3', id: 'shown 2' };
  log.info({ req: { url: '/shown', headers: { authorization: 'secret 1' } } }, 'a request');
  log.info({ service: secrets }, 'a service');
  await expect.poll(() => readFileSync(path, 'utf8')).toContain('a service');
  const text = readFileSync(path, 'utf8');
  expect(text).toContain('/shown');
  expect(text).toContain('shown 2');
  expect(text).not.toContain('secret');
});
