import { expect, test } from 'vitest';
import type { BeginStep } from '../../engine.ts';
import { finishRound } from './driver.ts';

test('a step that takes long says how far it is, after it was announced', async () => {
  const before = { reachable: false, present: true, provisioned: false };
  const begun: Parameters<BeginStep>[] = [];
  const verdict = await finishRound(
    {
      before,
      decided: { name: 'restore data' },
      tidy: async () => undefined,
      apply: async (show) => {
        show('10 % of 5 MB');
        return 'all of it';
      },
      isReachableAfter: () => false,
    },
    async (...step) => void begun.push(step),
  );
  expect(begun).toEqual([
    ['restore data', before],
    ['restore data', before, '10 % of 5 MB'],
  ]);
  expect(verdict).toMatchObject({ did: 'restore data', detail: 'all of it', outcome: 'again' });
});
