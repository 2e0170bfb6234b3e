// Shortens the rounds in which a control plane looks at all its services, from 30 s to 3 s: deaths that nobody reported, warnings, VPCs, verifications
// that are due. For tests of what is seen, not of when.
import { editBundle } from './edit-bundle.mjs';

editBundle([[String.raw`\b((?:DEATHS|DUE|LOOK)_EVERY_MS\d*) = 3e4;`, '$1 = 3e3;', 4]]);
