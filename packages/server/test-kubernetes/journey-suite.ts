/** The journey with a tag, by which gate A selects it. */
import { describe } from 'vitest';

describe('journey', { tags: 'journey' }, async () => {
  await import('./journey.ts');
});
