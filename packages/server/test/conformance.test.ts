/** The local engine keeps the promises of the engine interface, with real PostgreSQL servers. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { PROMISES, STATEMENT_PROMISES } from '../test-kubernetes/probe.ts';
import { createLocalSubject, type LocalSubject } from './conformance-local.ts';

let subject: LocalSubject;

beforeAll(async () => {
  subject = await createLocalSubject();
});
afterAll(async () => {
  expect(await subject?.destroy()).toEqual([]);
});

/**
 * The model engine is asked for all of them by its unit test; here one of so many runs by default.
 */
const SAMPLE_OF = 5;

for (const [position, { name, applies, check }] of [...PROMISES, ...STATEMENT_PROMISES].entries())
  test(name, { tags: position % SAMPLE_OF === 0 ? [] : ['slow'] }, async ({ skip }) => {
    if (applies?.(subject.engine) === false) skip('this machine has not the programs for it');
    await check(subject);
  });
