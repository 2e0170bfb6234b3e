// Makes the reserve of a control plane as small as on a small disk, 64 MB in place of up to 1 GB: several installations of tests run side by side.
import { editBundle } from './edit-bundle.mjs';

editBundle([[String.raw`\bLARGEST_BYTES = 1024 \*\* 3;`, 'LARGEST_BYTES = 64 * 1024 ** 2;', 1]]);
