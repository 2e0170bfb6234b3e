/** Starts and stops a control plane; everything that the command line uses of the server. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { FastifyBaseLogger } from 'fastify';
import { openApiTls } from './api/tls.ts';
import type { Config } from './config.ts';
import { assemble } from './control-plane.ts';
import { prepareMachine } from './engine/local/host/machine.ts';
import { certificateHosts } from './engine/local/index.ts';
import { consoleLink } from './first-key.ts';
import { apiUrl, findControl, recoveryPath, refuseMissingFiles } from './installation.ts';
import { exists } from './lib/processes.ts';
import { createRounds } from './lib/rounds.ts';
import { TUNING, type RoundName, type Tuning } from './lib/tuning.ts';
import { openCertificateAuthority, type CertificateAuthority } from './lib/tls.ts';
import { findMetadataPlace } from './metadata-record.ts';
import { openStandby, type Standby } from './standby.ts';
import { closeAll, timer, type Closers, type Progress } from './startup.ts';
import { AlreadyRunning } from './store/connections.ts';
import type { Store } from './store/database.ts';

export { readConfig, isInTheClear, ConfigError, type Config } from './config.ts';
export { AlreadyRunning } from './store/connections.ts';
export { findControl, readCredentials, credentialsPath, type Credentials } from './installation.ts';
export { ROUNDS, TUNING, type RoundName, type Tuning } from './lib/tuning.ts';
export { openLog, openOutputLog } from './lib/log.ts';
export { checkIntegrity } from './integrity.ts';
export { checkMachine } from './engine/local/admin/integrity.ts';
export { listAside } from './engine/local/admin/aside-data.ts';
export { recover, type RecoverOptions } from './recover.ts';
export { backupControl, restoreControl } from './engine/local/admin/control-backup.ts';
export { changeMetadata, describeMetadata } from './engine/local/admin/metadata-change.ts';
export { doctor } from './engine/local/admin/doctor.ts';
export { planInstall } from './engine/local/admin/install-extension.ts';
export { createStore, describeData, resizeStore } from './engine/local/admin/data-place.ts';
export { gigabytes } from './engine/local/host/image.ts';
export { stopDatabases } from './engine/local/admin/stop-databases.ts';
export { setInstallationUmask } from './lib/umask.ts';
export { startTlsGateway, type TlsGateway } from './tls-gateway/gateway.ts';
export { findProcess, signal, waitUntilGone } from './lib/processes.ts';
export { forgetForeign } from './lib/environment.ts';

export type ControlPlane = {
  apiUrl: string;
  /** A new link that opens the web console once, with the key of `credentials.json`; without that key, the address alone. */
  consoleLink: () => Promise<string>;
  /** Runs all rounds of a name now. @returns when each has run. @throws Error: there is none */
  runRound: (name: RoundName) => Promise<void>;
  /** Ends the control plane. The databases go on. */
  close: () => Promise<void>;
};

/**
 * Starts the control plane of an installation, up to its API.
 *
 * @param tuning how often everything runs; default: that of the product
 * @throws AlreadyRunning when one runs already; ConfigError and Error with what is in the way
 */
export async function startControlPlane(
  asked: Config,
  log: FastifyBaseLogger,
  progress: Progress,
  tuning: Tuning = TUNING,
): Promise<ControlPlane> {
  const databaseUrl = await findMetadataPlace(asked.home, asked.databaseUrl);
  const config = { ...asked, databaseUrl };
  const timed = timer(progress);
  const rounds = createRounds(tuning.rounds, log);
  if ((await findControl(config.home)) !== null)
    throw new AlreadyRunning(`the control plane of ${config.home} runs already`);
  if (await exists(recoveryPath(config.home)))
    throw new Error(
      `the recovery of ${config.home} was interrupted: run howdah recover with its kit again`,
    );
  await mkdir(config.home, { recursive: true, mode: 0o755 });
  if (!config.localRegion) await refuseMissingFiles(config.home);
  const [machine, authority] = await timed('examine the machine', () =>
    Promise.all([
      config.localRegion ? prepareMachine(config.home, config.uidRange, tuning) : null,
      openCertificateAuthority(join(config.home, 'ca')),
    ]),
  );
  const closers: Closers = [];
  const standby = config.localRegion ? null : await openStandbyOf(config, authority);
  if (standby !== null) closers.push(standby.close);
  const startup = { config, machine, standby, authority, log, tuning, rounds, timed, closers };
  const store = await assemble(startup).catch(async (error: unknown) => {
    await closeAll(closers);
    throw error;
  });
  return {
    apiUrl: apiUrl(config),
    consoleLink: () => linkOr(store, config, log),
    runRound: rounds.run,
    close: () => closeAll(closers),
  };
}

/** Other control planes have the same certificate authority, so clients trust its answers too. */
async function openStandbyOf(config: Config, authority: CertificateAuthority): Promise<Standby> {
  const hosts = certificateHosts(config.publicHost, config.host);
  const tls = config.tls.on ? await openApiTls(config.tls, hosts, authority) : null;
  return openStandby(config, tls?.current() ?? null);
}

/** A link into the console; without the metadata database, the address that asks for a key. */
async function linkOr(store: Store, config: Config, log: FastifyBaseLogger): Promise<string> {
  try {
    return await consoleLink(store, config);
  } catch (error) {
    log.warn({ err: error }, 'no link into the console');
    return new URL('/', apiUrl(config)).href;
  }
}
