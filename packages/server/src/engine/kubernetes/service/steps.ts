/** The names of steps as users read them. */
export const STEPS = {
  create: 'create Cluster',
  start: 'start PostgreSQL',
  stop: 'stop PostgreSQL',
  restart: 'restart PostgreSQL',
  write: 'write configuration',
  addStandby: 'add standby',
  removeStandby: 'remove standby',
  growVolume: 'grow volume',
  connect: 'connect',
  remove: 'remove data',
} as const;
