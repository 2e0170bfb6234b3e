/**
 * The promises that the comments of the engine interface make, each as a test of its own. Every
 * engine keeps all that apply to it.
 */
import { DATA_PROMISES } from './data-promises.ts';
import { LIFECYCLE_PROMISES } from './lifecycle-promises.ts';
import { READING_PROMISES } from './reading-promises.ts';
import { REPLICA_PROMISES } from './replica-promises.ts';
import type { Promised } from './subject.ts';

export const PROMISES: readonly Promised[] = [
  ...LIFECYCLE_PROMISES,
  ...DATA_PROMISES,
  ...REPLICA_PROMISES,
  ...READING_PROMISES,
];
