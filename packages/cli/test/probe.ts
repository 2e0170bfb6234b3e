/** The command line's source for its tests. */

// main
export { FORMATS } from '../src/output.ts';
export { loadProgram } from '../src/program.ts';
