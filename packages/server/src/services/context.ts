import type { Store } from '../store/database.ts';
import type { ReadLimit } from './read-limit.ts';
import type { Region } from './regions.ts';

/** What the changes and reads of services need. */
export type ControlContext = {
  store: Store;
  region: Region;
  /** Limits how many reads of logs run at once. */
  logReads: ReadLimit;
};
