import type { Regions } from '../engine/regions.ts';
import type { Store } from '../store/database.ts';
import type { ReadLimit } from './read-limit.ts';

/** The context of every call: the metadata database and the regions. */
export type ControlContext = {
  store: Store;
  regions: Regions;
  /** Limits the number of simultaneous reads of logs. */
  logReads: ReadLimit;
  /** Limits the number of simultaneous reads of what services take. */
  usageReads: ReadLimit;
};
