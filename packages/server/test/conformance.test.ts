/** The local engine keeps the promises of the engine interface, with real PostgreSQL servers. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { PROMISES } from '../src/engine/conformance/promises.ts';
import { createLocalSubject, type LocalSubject } from './conformance-local.ts';

let subject: LocalSubject;

beforeAll(async () => {
  subject = await createLocalSubject();
});
afterAll(async () => {
  expect(await subject?.destroy()).toEqual([]);
});

for (const { name, applies, check } of PROMISES)
  test(name, async ({ skip }) => {
    if (applies?.(subject.engine) === false) skip('this machine has not the programs for it');
    await check(subject);
  });
