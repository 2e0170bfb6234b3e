// Shortens the time that pgBackRest tries an unreachable server for, from 15 s to 5 s, and that
// between two tries of a verification. For tests of what is said of it, not of when.
import { editBundle } from '../test/edit-bundle.mjs';

editBundle([
  [String.raw`\b(IO_TIMEOUT_S\d*) = 15;`, '$1 = 5;', 1],
  [String.raw`\b(TRY_AGAIN_MS\d*) = 1e4;`, '$1 = 100;', 1],
]);
