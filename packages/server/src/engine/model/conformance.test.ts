import { describe, expect, it } from 'vitest';
import { PROMISES } from '../conformance/promises.ts';
import { createModelSubject } from './subject.testing.ts';
import { VIOLATIONS } from './violations.testing.ts';

describe('the model engine keeps the promises of the interface', () => {
  for (const { name, applies, check } of PROMISES)
    it(name, async () => {
      const subject = createModelSubject();
      expect(applies?.(subject.engine) ?? true).toBe(true);
      await check(subject);
    });
});

describe('a planted violation', () => {
  it('exists for each promise', () => {
    expect(Object.keys(VIOLATIONS).toSorted()).toEqual(PROMISES.map(({ name }) => name).toSorted());
  });

  for (const [broken, plant] of Object.entries(VIOLATIONS))
    it(`is found: ${broken}`, async () => {
      const red: string[] = [];
      for (const { name, check } of PROMISES)
        await check(createModelSubject(plant())).catch(() => red.push(name));
      expect(red).toEqual([broken]);
    });
});
