// Shortens the time that pgBackRest tries an unreachable server for, from 15 s to 5 s. For tests of
// what is said of it, not of when.
import { editBundle } from '../test/edit-bundle.mjs';

editBundle([[String.raw`\b(IO_TIMEOUT_S\d*) = 15;`, '$1 = 5;', 1]]);
