// Has a full backup off the machine due with every new snapshot, where one is due each day. For tests
// of what becomes of backups, not of when they are taken.
import { editBundle } from './edit-bundle.mjs';

editBundle([[String.raw`\[7 \* DAY_MS\d*, DAY_MS\d*\]`, '[1, 1]', 1]]);
