import { expect, test } from 'vitest';
import { argumentsOfStart, startedBy } from './server.ts';
import { sizeLabel } from '../../postgres/size-label.ts';

test('the command line of a server says how it was started', () => {
  for (const restarts of [0, 7]) {
    const start = { size: { cpuMillis: 500, memoryGbs: 2 }, preload: ['b', 'a'], restarts };
    const size = sizeLabel(start.size, start.preload);
    expect(startedBy(argumentsOfStart(start))).toEqual({ size, restarts });
  }
});

test('a server of an older release was started without a request', () => {
  expect(startedBy(['-c', 'howdah.size=shared'])).toEqual({ size: 'shared', restarts: 0 });
  expect(startedBy(['-c', 'port=5432'])).toEqual({ size: null, restarts: 0 });
});

test('the order of libraries makes no other size', () => {
  expect(sizeLabel('shared', ['b', 'a'])).toBe('shared+a+b');
  expect(sizeLabel({ cpuMillis: 250, memoryGbs: 1 })).toBe('250m-1g');
});
