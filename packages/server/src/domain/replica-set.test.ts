import { expect, test } from 'vitest';
import { settingsOfPurpose } from './replica-set.ts';

test('nodes for reports have the primary keep rows, nodes for lookups leave it alone', () => {
  expect(settingsOfPurpose('reports')).toMatchObject({
    hot_standby_feedback: 'on',
    max_standby_streaming_delay: '10min',
  });
  expect(settingsOfPurpose('lookups')).toEqual({});
});
