/**
 * The contract of Howdah's API as data: schemas, sizes, statuses, what each status allows, error codes, ids.
 * Pure and without I/O. The API, the reconciler, the CLI, the console and the tests read the same rows.
 */
export * from './actions.ts';
export * from './errors.ts';
export * from './events.ts';
export * from './ids.ts';
export * from './permissions.ts';
export * from './schema.ts';
export * from './schemas.ts';
export * from './sizes.ts';
export * from './status.ts';
export * from './text.ts';
export * from './types.ts';
