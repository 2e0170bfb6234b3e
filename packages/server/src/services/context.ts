import type { Store } from '../store/database.ts';
import type { ReadLimit } from './read-limit.ts';
import type { Region } from './regions.ts';

/** The context of every call: the metadata database and the region. */
export type ControlContext = {
  store: Store;
  region: Region;
  /** Limits the number of simultaneous reads of logs. */
  logReads: ReadLimit;
};
