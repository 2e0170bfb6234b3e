/** Observes one server: a single one, an instance of a cluster, or a node of a read replica set. */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { memberKey } from '../host/layout.ts';
import { isCpuBoundCurrent } from '../host/limits.ts';
import type { Machine } from '../host/machine-record.ts';
import { currentBoot, readMarker, type Marker } from '../host/marker.ts';
import { isOwned } from '../host/ownership.ts';
import { type Owner, configUsersOf, ownerOf } from '../host/users.ts';
import { countDisallowedSessions } from '../../postgres/sessions/disallowed-sessions.ts';
import { runsInNetworkOf } from '../network/listener.ts';
import { areContentsCurrent } from '../../postgres/contents/contents.ts';
import { readCreated } from '../../postgres/contents/extension-sql.ts';
import { configFiles, type ConfigFiles } from '../postgres/files.ts';
import { filesWhileProvisioning } from '../../postgres/server-conf.ts';
import {
  installationOf,
  majorOf,
  presentOf,
  whyNotStartable,
  type Installation,
} from '../postgres/installations.ts';
import { SLOW_HEARTBEAT } from '../../postgres/sessions/monitor.ts';
import { findServer, planLaunch, type Started } from '../postgres/server.ts';
import { sizeLabel } from '../../postgres/size-label.ts';
import { phaseOf } from '../../postgres/postmaster-file.ts';
import { extensionsOf, loadedExtensions } from '../../../domain/postgres/extension-rules.ts';
import { observePooler } from '../proxy/pooler.ts';
import { areFilesCurrent, isCertificateCurrent } from './make-instance.ts';
import { listenerFor, type Topology } from './context.ts';
import type { Observation, StartSeen } from '../../postgres/decisions/decide.ts';
import type { Found } from './executor.ts';
import { LOOPBACK } from './place-servers.ts';
import { planPooler } from './pooler-plan.ts';
import { beginsWithData, type PlacedSpec } from '../../postgres/decisions/placed-spec.ts';

/** A server as it is found, and as the decisions see it. */
export type ObservedServer = { readonly found: Found; readonly seen: Observation };

/** Whether a service has one server, which its clients reach without a gateway. */
const isSingle = ({ ha, set }: PlacedSpec): boolean => ha === null && set === null;

/** Whether its clients reach it by nothing else. */
const isDirect = (spec: PlacedSpec): boolean => isSingle(spec) && spec.serverPort === undefined;

/** Observes server `n` of a service. */
export async function observeServer(
  topology: Topology,
  spec: PlacedSpec,
  n = 0,
): Promise<ObservedServer> {
  const { machine } = topology;
  const paths = machine.layout.member(spec.id, n);
  const listener = listenerFor(topology, spec);
  const listen = listenOf(spec, n, listener.address);
  const [marker, server] = await Promise.all([readMarker(paths), findServer(paths)]);
  const exists = existsSync(n === 0 ? paths.root : paths.data);
  const { installation, notStartable } = await installationAt(machine, spec, marker);
  const place: Place = { paths, listen, listener, marker };
  const files = desiredFiles(topology, spec, place, installation);
  const directory = await directoryOf(spec, exists, place, server !== null);
  // The pooler of a set is in front of all its nodes.
  const isBehindPooler =
    spec.set === null && (spec.ha === null || n === machine.layout.primaryOf(spec.id));
  const pooler = isBehindPooler
    ? await planPooler(topology.poolers, spec, {
        paths,
        key: memberKey(spec.id, n),
        port: listen.port,
        listener,
        installation,
      })
    : null;
  const found: Found = {
    key: memberKey(spec.id, n),
    ...place,
    heartbeat: isSingle(spec) ? SLOW_HEARTBEAT : topology.heartbeat,
    server,
    installation,
    ...files,
    pooler,
    ...(isSingle(spec) ? await findRelay(topology, spec, { ...place, installation }) : NO_RELAY),
  };
  const seen = await observe(topology, spec, found, { directory, isBehindPooler, notStartable });
  return { found, seen };
}

type Place = Pick<Found, 'paths' | 'listen' | 'listener' | 'marker'>;

/** Where a server listens: a single one on the service's port, several behind the gateway. */
function listenOf(
  { ha, set, endpoint, serverPort }: PlacedSpec,
  n: number,
  address: string,
): Found['listen'] {
  if (serverPort !== undefined) return { address: LOOPBACK, port: serverPort };
  const servers = ha?.servers ?? set?.nodes ?? null;
  return servers === null
    ? { address, port: endpoint.port }
    : {
        address: LOOPBACK,
        port: servers.find((server) => server.n === n)?.port ?? endpoint.port,
      };
}

/**
 * The PostgreSQL that a server runs on; a fork runs on what its parent runs on, unless it is to be
 * of another major version.
 */
async function installationAt(
  { installations, layout }: Machine,
  spec: PlacedSpec,
  marker: Marker | null,
): Promise<{ installation: Installation | null; notStartable: string | null }> {
  const { origin, set } = spec;
  const followed = set === null ? null : await readMarker(layout.service(set.parent));
  if (followed !== null) {
    // The nodes of a set are made again from a primary that was upgraded.
    const present = presentOf(installations.usable);
    const needs = { ...spec, major: majorOf(followed) };
    return {
      installation: installationOf(present, followed, needs),
      notStartable: whyNotStartable(present, followed, needs),
    };
  }
  const parents =
    marker === null && origin !== null ? await readMarker(layout.service(origin.parent)) : null;
  const isConverted = parents !== null && spec.major !== null && majorOf(parents) !== spec.major;
  const made = isConverted ? null : (marker ?? parents);
  const present = presentOf(installations.usable);
  // The record gets the version of an upgrade when all of it is done.
  const wanted =
    spec.upgrade !== null && marker?.id === spec.id ? { ...spec, major: majorOf(marker) } : spec;
  return {
    installation: installationOf(present, made, wanted),
    notStartable: whyNotStartable(present, made, wanted),
  };
}

/** The desired files: now, as another user, and once the service is provisioned. */
function desiredFiles(
  { machine, offMachine }: Topology,
  spec: PlacedSpec,
  { paths, listen, listener, marker }: Place,
  installation: Installation | null,
): Pick<Found, 'files' | 'filesAs' | 'filesOnceProvisioned'> {
  if (installation === null) return { files: null, filesAs: null, filesOnceProvisioned: null };
  const isOurs = marker?.id === spec.id;
  const isProvisioningFork = beginsWithData(spec) && !(isOurs && marker.provisioned);
  const filesNow = (all: ConfigFiles): ConfigFiles =>
    isProvisioningFork ? filesWhileProvisioning(all) : all;
  const filesBy = (owner: Owner | null): ConfigFiles =>
    configFiles(
      {
        paths,
        installation,
        extensions: loadedExtensions(spec),
        size: spec.size,
        storageGb: spec.storageGb,
        listen,
        allowedNetworks: isDirect(spec) ? listener.allowedNetworks : null,
        idleSessionSeconds:
          spec.serverPort === undefined ? null : (spec.sleep?.afterSeconds ?? null),
        replicated: !isSingle(spec),
        copied: spec.move?.as === 'source',
        purpose: spec.set?.purpose ?? null,
        offMachine: offMachine(),
      },
      configUsersOf(
        owner,
        spec.set !== null && machine.isolation.isolated ? machine.isolation.gateway : null,
      ),
    );
  const filesOnceProvisioned = filesBy(ownerOf(machine, paths));
  return {
    files: filesNow(filesOnceProvisioned),
    filesAs: (owner) => filesNow(filesBy(owner)),
    filesOnceProvisioned,
  };
}

async function directoryOf(
  { id }: PlacedSpec,
  exists: boolean,
  { marker, paths }: Place,
  runs: boolean,
): Promise<Observation['directory']> {
  if (!exists) return 'absent';
  if (marker?.id !== id) return 'foreign';
  if (!runs && !existsSync(join(paths.data, 'global', 'pg_control'))) return 'lost';
  const isIncomplete = !runs && !marker.provisioned && marker.madeIn !== (await currentBoot());
  return isIncomplete ? 'incomplete' : 'ours';
}

async function observe(
  topology: Topology,
  spec: PlacedSpec,
  found: Found,
  {
    directory,
    isBehindPooler,
    notStartable,
  }: Pick<Observation, 'directory' | 'notStartable'> & { isBehindPooler: boolean },
): Promise<Observation> {
  const { machine, monitor, templates, executor, certificates, poolers } = topology;
  const { key, paths, listener, marker, server, installation, files, pooler: plan } = found;
  const isOurs = marker?.id === spec.id;
  const [
    templateReady,
    phase,
    filesCurrent,
    certificateCurrent,
    contentsCurrent,
    extension,
    pooler,
    placed,
    disallowed,
  ] = await Promise.all([
    directory === 'absent' &&
      installation !== null &&
      templates.isReady(installation, extensionsOf(spec.addons)),
    phaseOf(paths),
    !isOurs || files === null || areSettingsCurrent(topology, spec, found, files),
    !isOurs || isCertificateCurrent(certificates, paths, listener),
    !isOurs || !marker.provisioned || observeContents(topology, found),
    isBehindPooler ? observeExtension(topology, spec, found) : null,
    isBehindPooler ? observePooler(poolers, machine.layout.service(spec.id), plan, listener) : null,
    server === null || runsInNetworkOf(server.postmaster.pid, listener),
    // Behind a gateway it is the gateway that lets them in.
    isDirect(spec) ? countDisallowedSessions(monitor, key, listener.allowedNetworks) : 0,
  ]);
  return {
    directory,
    provisioned: isOurs && marker.provisioned,
    recovered: spec.recovery === null || (isOurs && marker.recovery === spec.recovery.id),
    upgrade: isOurs ? upgradeSeen(spec, marker) : 'done',
    notStartable,
    templateReady,
    server:
      server === null
        ? null
        : {
            phase,
            start: startOf(server, spec),
            placed,
            ...(isSingle(spec) && !isAtPort(found) ? { elsewhere: true as const } : {}),
          },
    silentMs: monitor.silentMs(key),
    owned: !isOurs || (await isOwned(machine, spec, marker)),
    connected: monitor.isConnected(key),
    limited: !executor.unlimited.has(key),
    filesCurrent,
    certificateCurrent,
    contentsCurrent,
    extension,
    pooler,
    disallowedSessions: disallowed,
    relay: relaySeen(found),
  };
}

/**
 * Whether a server listens on the desired port, or it is not known yet. A relay that is gone may
 * have left its server on the port behind it.
 */
const isAtPort = ({ server, listen }: Pick<Found, 'server' | 'listen'>): boolean =>
  server?.port == null || server.port === listen.port;

const NO_RELAY: Pick<Found, 'relay' | 'relayView'> = { relay: null, relayView: null };

async function findRelay(
  { machine, executor: { relays } }: Topology,
  spec: PlacedSpec,
  found: Pick<Found, 'paths' | 'listener' | 'installation'>,
): Promise<Pick<Found, 'relay' | 'relayView'>> {
  const relayView = await relays.see(spec.id);
  const { paths, listener, installation } = found;
  if (spec.serverPort === undefined || installation === null) return { relay: null, relayView };
  const launch = await planLaunch(
    machine,
    ownerOf(machine, paths),
    paths,
    installation.bin,
    spec,
    listener,
  );
  const plan = {
    id: spec.id,
    listen: { address: listener.address, port: spec.endpoint.port },
    allowedNetworks: listener.allowedNetworks,
    serverPort: spec.serverPort,
    launch,
  };
  const version = createHash('sha256').update(JSON.stringify(plan)).digest('hex');
  return { relay: { ...plan, version }, relayView };
}

const relaySeen = ({ relay, relayView }: Found): Observation['relay'] =>
  relayView === null
    ? null
    : { state: relayView.state, current: relayView.version === relay?.version };

/** A reload brings both the files and the bound of the CPU to a running server of any role. */
async function areSettingsCurrent(
  { machine, executor }: Topology,
  spec: PlacedSpec,
  { key, paths, server }: Found,
  files: ConfigFiles,
): Promise<boolean> {
  if (!(await areFilesCurrent(paths, files))) return false;
  // While its limits are enforced after a start, its group may lack them.
  if (server === null || executor.limiting.has(key)) return true;
  return isCpuBoundCurrent(machine, key, spec);
}

function upgradeSeen({ upgrade }: PlacedSpec, marker: Marker): Observation['upgrade'] {
  if (upgrade === null) return 'done';
  if (marker.exchange?.upgrade === upgrade.id) return 'made';
  const isInUse = marker.upgrade === upgrade.id;
  return isInUse === upgrade.undo ? 'asked' : 'done';
}

function startOf(server: Started, { size, preload, restarts }: PlacedSpec): StartSeen {
  if (server.size !== sizeLabel(size, preload)) return 'otherSettings';
  return server.restarts === restarts ? 'current' : 'restart';
}

/**
 * Whether the contents of a server are current; asked once for each of its starts. A server that
 * does not answer gets the step in a later round.
 */
async function observeContents(
  { monitor, executor: { current } }: Topology,
  { key, server }: Found,
): Promise<boolean> {
  if (server === null || !monitor.isConnected(key)) return true;
  const { pid } = server.postmaster;
  if (current.get(key) === pid) return true;
  const isCurrent = await areContentsCurrent(monitor, key).catch(() => null);
  if (isCurrent === true) current.set(key, pid);
  return isCurrent !== false;
}

/** Whether the requested change of the extensions of a primary is still to be made. */
async function observeExtension(
  { monitor }: Topology,
  { size, preload, extension }: PlacedSpec,
  { key, paths, server, listen }: Found,
): Promise<Observation['extension']> {
  if (extension === null || server === null || !monitor.isConnected(key)) return null;
  const isCreated = extension.wanted === 'created';
  // An extension needs its library.
  if (isCreated && server.size !== sizeLabel(size, preload)) return null;
  const created = await readCreated({ paths, port: listen.port }).catch(() => null);
  // The step fails with the reason why the database cannot be asked.
  if (created !== null && created.has(extension.name) === isCreated) return null;
  return isCreated ? 'create' : 'drop';
}
