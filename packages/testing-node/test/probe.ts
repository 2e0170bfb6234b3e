/** The package's source for its tests. */
export * from '../src/index.ts';
