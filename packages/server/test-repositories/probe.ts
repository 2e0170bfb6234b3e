/** The server's source for tests, beside test/probe.ts: the contents of repositories. */

// engine/local/backup
export { materialise } from '../src/engine/local/backup/fork.ts';
export { copyWalFrom } from '../src/engine/local/backup/recovery.ts';
export { forkRecoveryConf } from '../src/engine/postgres/recovery-conf.ts';
export { portOf, takeSnapshot } from '../src/engine/local/backup/running-clone.ts';

// engine/local/repository
export type { ShipContext, ShipPolicy } from '../src/engine/local/repository/state.ts';
export { expire, forgetStanza } from '../src/engine/local/repository/backup.ts';
export { fetchBackup } from '../src/engine/local/repository/fetch.ts';
export { ship, takeBackup } from '../src/engine/local/repository/ship.ts';
export { type OffMachine, offMachine } from '../src/engine/local/repository/state.ts';

// repository
export {
  checkRepository,
  getObject,
  listFiles,
  listObjects,
  markPassphrase,
  putObject,
  removeObject,
} from '../src/repository/objects.ts';
export { runPgBackRest } from '../src/repository/run.ts';
export { type KnownService, removeUnknownServices, serviceOf } from '../src/repository/stanzas.ts';

// services
export { useOf } from '../src/services/repositories.ts';
export { repositoryOf } from '../src/services/repositories.ts';
