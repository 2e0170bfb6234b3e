/**
 * The contract of Howdah's API as data: schemas, sizes, statuses, the actions that each status
 * allows, error codes, ids. It does no I/O. The API, the reconciler, the CLI, the console and the
 * tests read the same tables.
 */
export * from './actions.ts';
export * from './canonical.ts';
export * from './alerts.ts';
export * from './effects.ts';
export * from './errors.ts';
export * from './events.ts';
export * from './ids.ts';
export * from './values.ts';
export * from './permissions.ts';
export * from './schema.ts';
export * from './schemas.ts';
export * from './schemas/alerts.ts';
export * from './schemas/networks.ts';
export * from './schemas/backups.ts';
export * from './schemas/certificates.ts';
export * from './schemas/errors-and-endpoints.ts';
export * from './schemas/exporters.ts';
export * from './schemas/extensions.ts';
export * from './schemas/installation.ts';
export * from './schemas/leases.ts';
export * from './schemas/simulation.ts';
export * from './schemas/sleep.ts';
export * from './schemas/usage.ts';
export * from './simulated.ts';
export * from './schemas/access.ts';
export * from './schemas/kubernetes-regions.ts';
export * from './schemas/monitoring.ts';
export * from './schemas/operations.ts';
export * from './schemas/services.ts';
export * from './schemas/repositories.ts';
export * from './schemas/service-changes.ts';
export * from './schemas/verifications.ts';
export * from './sizes.ts';
export * from './status.ts';
export * from './text.ts';
export * from './types.ts';
export * from './waits.ts';
