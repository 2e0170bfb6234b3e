// Has a full backup off the machine due with every new snapshot, where one is due each day. For tests
// of what becomes of backups, not of when they are taken.
import { editBundle } from './edit-bundle.mjs';

editBundle([
  [
    String.raw`fullEveryMs: 7 \* DAY_MS\d*,\s*backupEveryMs: DAY_MS\d*`,
    'fullEveryMs: 1, backupEveryMs: 1',
    1,
  ],
]);
