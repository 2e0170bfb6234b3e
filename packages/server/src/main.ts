/** Starts and stops a control plane; everything that the command line uses of the server. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyBaseLogger } from 'fastify';
import { openApiTls } from './api/tls.ts';
import type { Config } from './config.ts';
import { assemble } from './control-plane.ts';
import { prepareMachine } from './engine/local/host/machine.ts';
import { endOrphans, removeKernelParts } from './engine/local/host/orphans.ts';
import { certificateHosts } from './engine/local/index.ts';
import { consoleLink } from './first-key.ts';
import { apiUrl, findControl, recoveryPath, refuseMissingFiles } from './installation.ts';
import { exists } from './lib/processes.ts';
import { findLost, rememberPlaces, type Place } from './lib/places.ts';
import { createRounds } from './lib/rounds.ts';
import { TUNING, type RoundName, type Tuning } from './lib/tuning.ts';
import { openCertificateAuthority, type CertificateAuthority } from './lib/tls.ts';
import { findMetadataPlace } from './metadata-record.ts';
import { openStandby, type Standby } from './standby.ts';
import { closeAll, timer, type Closers, type Progress, type Startup } from './startup.ts';
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
  /**
   * A new link that opens the web console once, with the key of `credentials.json`; without that
   * key, the address alone.
   */
  consoleLink: () => Promise<string>;
  /** Runs all rounds of a name now. @returns when each has run. @throws Error: there is none */
  runRound: (name: RoundName) => Promise<void>;
  /**
   * Resolves with a sentence when a directory of the installation is gone, or something else has
   * its path. The process must end then, without `close`, which would write there.
   */
  lost: Promise<string>;
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
      config.localRegion
        ? prepareMachine(config.home, config.uidRange, tuning, config.boundsCpu)
        : null,
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
    lost: config.localRegion ? watchPlaces(startup) : new Promise<string>(() => undefined),
    apiUrl: apiUrl(config),
    consoleLink: () => linkOr(store, config, log),
    runRound: rounds.run,
    close: () => closeAll(closers),
  };
}

/** Looks whether the directories of the installation are still where they were. */
function watchPlaces(startup: Startup): Promise<string> {
  const { config, machine, rounds, closers } = startup;
  const paths = [
    config.home,
    join(config.home, 'secrets.key'),
    ...(machine === null ? [] : [machine.layout.root, machine.layout.services]),
    ...config.regions.map(({ directory }) => directory),
  ];
  return new Promise((resolve) => {
    const known = rememberPlaces(paths);
    const round = rounds.every('places', async () => {
      const lost = await findLost(await known);
      if (lost !== null) void endLost(startup, lost).then(resolve);
    });
    closers.push(() => round.close());
    round.start();
  });
}

/** A removal that is under way takes a while until the last server has no directory. */
const REMOVAL_LOOKS = 5;
const REMOVAL_LOOK_MS = 1000;

/** Ends what goes on without its files. @returns a sentence for the user */
async function endLost(startup: Startup, { path }: Place): Promise<string> {
  const { config, machine, rounds, log } = startup;
  rounds.endAll();
  const ended = [];
  const regions = config.regions.map(({ directory }) => directory);
  for (let look = 0; look < REMOVAL_LOOKS && machine !== null; look += 1) {
    for (const root of [machine.layout.root, ...regions]) ended.push(...(await endOrphans(root)));
    await sleep(REMOVAL_LOOK_MS);
  }
  if (machine !== null)
    await removeKernelParts(machine).catch((error: unknown) =>
      log.warn(
        { err: error },
        'networks, packet filters or control groups stay: howdah audit lists them',
      ),
    );
  const problem =
    `${path} is gone, or another directory has its place. The control plane ends, and leaves the ` +
    'path alone: mount or move it back and run howdah up; if it was removed, howdah audit of ' +
    'another installation lists what is left of it on this machine.';
  log.error({ path, ended }, problem);
  return problem;
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
