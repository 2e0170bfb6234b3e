import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createLayout } from '../host/layout.ts';
import { bareMachine } from '../host/bare-machine.testing.ts';
import type { Machine } from '../host/machine-record.ts';
import { createPrecloned, type Precloned } from './precloned.ts';

let machine: Machine;
let precloned: Precloned;
const template = { name: '17-a', data: '' };
/** Rarely enough: each question postpones the clone that is made while nobody asks. */
const SEEN = { timeout: 30_000, interval: 1500 };
vi.setConfig({ testTimeout: 2 * SEEN.timeout });

beforeEach(async () => {
  const layout = createLayout(await realpath(await mkdtemp(join(tmpdir(), 'hdst-'))));
  machine = bareMachine(layout);
  template.data = join(layout.templates, template.name, 'data');
  await mkdir(join(template.data, 'global'), { recursive: true });
  await writeFile(join(template.data, 'global', 'pg_control'), 'of the template');
  await mkdir(layout.precloned);
  precloned = createPrecloned(machine);
});
afterEach(async () => {
  precloned.close();
  await rm(machine.layout.root, { recursive: true });
});

/** Takes a clone if there is one. @returns whether there was */
const take = (to: string): Promise<boolean> =>
  precloned.withClone(template, async (clone) => (await clone?.moveTo(to)) === true);

/** Takes one when there is one. @returns where it is now */
async function taken(name: string): Promise<string> {
  const to = join(machine.layout.root, name);
  await vi.waitUntil(() => take(to), SEEN);
  return readFile(join(to, 'global', 'pg_control'), 'utf8');
}

test('a clone is made ahead, another when it is taken, and none is incomplete', async () => {
  expect(await take(join(machine.layout.root, 'too early'))).toBe(false);
  expect(await taken('first')).toBe('of the template');
  expect(await taken('second')).toBe('of the template');
  expect(existsSync(join(machine.layout.root, 'too early'))).toBe(false);
});

test('only one of two callers gets a clone', async () => {
  precloned.fillSoon(template);
  await vi.waitUntil(async () => (await readdir(machine.layout.precloned)).length > 0, SEEN);
  const both = async () =>
    Promise.all(['a', 'b'].map((name) => take(join(machine.layout.root, name))));
  const got = await vi.waitUntil(async () => {
    const answers = await both();
    return answers.includes(true) && answers;
  }, SEEN);
  expect(got.filter((one) => one)).toHaveLength(1);
  expect(
    (await readdir(machine.layout.root)).filter((name) => name === 'a' || name === 'b'),
  ).toHaveLength(1);
});

test('clones of an earlier control plane are removed and never taken', async () => {
  for (const name of [template.name, '16-old']) {
    await mkdir(join(machine.layout.precloned, name, 'data', 'global'), { recursive: true });
    await writeFile(join(machine.layout.precloned, name, 'data', 'global', 'pg_control'), 'half');
  }
  expect(await take(join(machine.layout.root, 'early'))).toBe(false);
  expect(await taken('late')).toBe('of the template');
  expect(await readdir(machine.layout.precloned)).toEqual([template.name]);
});

test('a clone that is taken and not yet moved is not removed, however long it takes', async () => {
  const to = join(machine.layout.root, 'slow');
  const place = join(machine.layout.precloned, template.name, 'data');
  const takeSlowly = () =>
    precloned.withClone(template, async (clone) => {
      if (clone === null) return false;
      // Another create asks meanwhile, and the next clone is due.
      expect(await take(join(machine.layout.root, 'other'))).toBe(false);
      await writeFile(join(place, 'mark'), 'this clone');
      await sleep(3000);
      return clone.moveTo(to);
    });
  await vi.waitUntil(takeSlowly, SEEN);
  expect(await readFile(join(to, 'mark'), 'utf8')).toBe('this clone');
  expect(await taken('next')).toBe('of the template');
});

test('a clone that was removed by hand is replaced', async () => {
  precloned.fillSoon(template);
  const place = join(machine.layout.precloned, template.name, 'data');
  await vi.waitUntil(() => existsSync(place), SEEN);
  await rm(place, { recursive: true, force: true });
  expect(await taken('again')).toBe('of the template');
});
