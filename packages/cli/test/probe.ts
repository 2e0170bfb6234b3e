/** The command line's source for its tests. */

// main
export { FORMATS } from '../src/output.ts';
export { createProgram } from '../src/program.ts';
