/**
 * Moves the data of a service into a newer major version of PostgreSQL, in its place, and back
 * (docs/decisions/0050-upgrades.md). The copy is made beside the data, and then exchanged with it:
 * the former data stays with its snapshots and its WAL, and comes back by the same exchange.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { MAX_REPLICAS } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import { whyNotServed } from '../../../repository/pgbackrest.ts';
import type { RunStep } from '../../run-step.ts';
import { TRIAL_STEP, type ServiceSpec, type Upgrade } from '../../spec.ts';
import { forkData } from '../backup/fork.ts';
import { REPLACED, removeReplaced } from '../backup/aside-data.ts';
import { isArchiveAway, linkBeside } from '../backup/linked-archive.ts';
import { convert, whyNotConverted } from '../convert/convert.ts';
import { discard } from '../host/clone.ts';
import { memberKey, type InstancePaths } from '../host/layout.ts';
import { removeLimits } from '../host/limits.ts';
import { readMarker, writeMarker, type Marker } from '../host/marker.ts';
import { NotYet, Refused } from '../../not-yet.ts';
import { mkdir, rename } from '../host/root-files.ts';
import { entryExists } from '../../../lib/untrusted-files.ts';
import { ownerOf } from '../host/users.ts';
import {
  installationFor,
  installationOf,
  majorOf,
  missingFor,
  type Installation,
} from '../postgres/installations.ts';
import { pushRest } from '../repository/ship.ts';
import { upgradeIn } from '../repository/state.ts';
import { findServer, makeInstanceDirectories } from '../postgres/server.ts';
import { stopPooler } from '../proxy/pooler.ts';
import { converting, type Executor } from './executor.ts';
import { instanceNumbers, primaryPaths } from './instances.ts';
import type { NewInstance } from './make-instance.ts';
import type { PlacedSpec } from '../../postgres/decisions/placed-spec.ts';
import { stopInstance } from './start-stop.ts';

/** The data of the primary, and its WAL and snapshots: each system identifier has its own. */
const itemsOf = ({ data, archive, snapshots }: InstancePaths) => [
  { name: '0', path: data },
  { name: 'archive', path: archive },
  { name: 'snapshots', path: snapshots },
];

/** Where an upgrade has the new data until it is in place, and where it leaves the former data. */
export const placesOf = (
  { machine }: Pick<Executor, 'machine'>,
  id: string,
  { id: upgrade, reset }: Pick<Upgrade, 'id' | 'reset'>,
) => {
  const place = join(machine.layout.aside(id), upgrade);
  const former = reset === undefined ? place : `${place}${REPLACED}`;
  return { former, made: `${place}-made`, undone: `${place}-undone` };
};

/** A repository that takes longer for the last WAL keeps nobody from connecting. */
const REST_MS = 20_000;

/**
 * Stops a service and copies its data into the new version, beside it.
 *
 * @returns a line for the user
 * @throws NotYet while others are being copied: the service runs meanwhile; Refused with the reason
 *   when the data cannot be copied
 */
export async function convertInPlace(
  executor: Executor,
  { spec, paths, installation: from }: NewInstance,
  upgrade: Upgrade,
): Promise<string> {
  const { machine, templates, rounds } = executor;
  const to = newerOrRefuse(executor, spec, upgrade.to);
  if (await isArchiveAway(paths.archive))
    throw new Refused(
      'its WAL archive is a link to a disk that is not there: mount it, then upgrade again',
    );
  return converting(executor, async () => {
    const owner = ownerOf(machine, paths);
    const { made } = placesOf(executor, spec.id, upgrade);
    try {
      const lost = await describeLoss(executor, spec.id);
      await stopAll(executor, spec.id);
      const sending = sendRest(executor, spec.id);
      await discard(machine, spec.id, made);
      await mkdir(made, { recursive: true, mode: 0o700 });
      const target = join(made, '0');
      const conversion = { machine, templates, rounds, spec, owner, from, to, signal: null };
      const done = await convert(conversion, cloneOf(executor, paths, spec.id), target);
      // The private server of the conversion has flushed nothing.
      await executor.flush();
      // Once `exchange` is written, nothing more of the former data is sent.
      const unsent = await sending;
      const marker = await markerOfService(executor, spec.id);
      const exchange = { upgrade: upgrade.id, installation: to.name };
      await writeMarker(machine.layout.service(spec.id), { ...marker, exchange });
      return `${done}${lost}${unsent}`;
    } catch (error) {
      if (error instanceof NotYet) throw error;
      await discard(machine, spec.id, made);
      throw new Refused(messageOf(error), { cause: error });
    }
  });
}

/**
 * Sends the end of the WAL to the repositories, which an upgrade that is not backed up yet is
 * recovered from. The outage is not longer than the copy for it, but for a repository that is slow.
 *
 * @returns a line for the user; empty: they have everything
 */
async function sendRest({ machine, repositories }: Executor, id: string): Promise<string> {
  const { program, list } = repositories;
  if (program === null) return '';
  const upgrade = upgradeIn(machine.layout.service(id));
  const signal = AbortSignal.timeout(REST_MS);
  const lacking: string[] = [];
  for (const repository of await list().catch(() => [])) {
    const rest = { context: { machine, program }, id, upgrade, repository, signal };
    if (!(await pushRest(rest).catch(() => false))) lacking.push(repository.name);
  }
  return lacking.length === 0
    ? ''
    : `; without the last WAL before the upgrade: the repository ${lacking.join(', ')}`;
}

/** @throws Refused when the version is not installed, or cannot take over the data */
function newerOrRefuse(
  { machine, repositories }: Executor,
  { addons }: Pick<ServiceSpec, 'addons'>,
  major: number,
): Installation {
  const { usable } = machine.installations;
  const to = installationFor(usable, addons, major);
  if (to === null) throw new Refused(missingFor(usable, addons, major));
  const unserved =
    repositories.known().length === 0 ? null : whyNotServed(repositories.program, to.major);
  const why = whyNotConverted(to, addons) ?? unserved;
  if (why !== null) throw new Refused(why);
  return to;
}

/** Clones the data of a service, running or not. */
const cloneOf =
  ({ machine }: Executor, paths: InstancePaths, parent: string) =>
  async (target: string): Promise<string> => {
    const origin = { parent, strategy: 'NOW', targetTime: null } as const;
    await forkData(machine, ownerOf(machine, paths), paths, target, origin, async () => undefined);
    return 'a clone of its data';
  };

const LOGICAL_SLOTS =
  "select slot_name::text as name from pg_replication_slots where slot_type = 'logical' limit 10";

/** A service may be restarted while it is cloned. */
const CLONE_ATTEMPTS = 3;
const CLONE_AGAIN_MS = 2000;

const cloneOfRunning =
  (executor: Executor, paths: InstancePaths, id: string, signal: AbortSignal) =>
  async (target: string): Promise<string> => {
    const clone = cloneOf(executor, paths, id);
    for (let attempt = 1; ; attempt++) {
      try {
        return await clone(target);
      } catch (error) {
        if (attempt === CLONE_ATTEMPTS || signal.aborted) throw error;
        await discard(executor.machine, id, target);
        await sleep(CLONE_AGAIN_MS, undefined, { signal });
      }
    }
  };

/** The parts of a service that no copy has, in words for the user; empty: there are none. */
async function describeLoss({ machine, monitor }: Executor, id: string): Promise<string> {
  const key = memberKey(id, machine.layout.primaryOf(id));
  // After an interruption, the servers do not run any more.
  if (!monitor.isConnected(key)) return '';
  // A server that dies now is upgraded all the same.
  const slots = await monitor.query<{ name: string }>(key, LOGICAL_SLOTS).catch(() => []);
  const names = slots.map(({ name }) => name).join(', ');
  return slots.length === 0 ? '' : `; logical replication slots are not copied: ${names}`;
}

/** Ends all of a service that reads or writes its data. */
async function stopAll(executor: Executor, id: string): Promise<void> {
  const { machine, poolers } = executor;
  const { layout } = machine;
  await stopPooler(poolers, layout.service(id));
  const primary = layout.primaryOf(id);
  const others = (await instanceNumbers(machine, id)).filter((n) => n !== primary);
  // The primary first: as it ends it sends all it has to the others.
  for (const n of [primary, ...others]) {
    const paths = layout.member(id, n);
    const server = await findServer(paths);
    if (server !== null) await stopInstance(executor, memberKey(id, n), paths, server, 'fast');
  }
}

/** The marker of a service that has data. */
export async function markerOfService({ machine }: Executor, id: string): Promise<Marker> {
  const marker = await readMarker(machine.layout.service(id));
  if (marker === null) throw new Error(`service ${id} has no directory of ours`);
  return marker;
}

/**
 * Exchanges the data of a service with that of an upgrade or a reset: with the new data, or for an
 * undo with the former data. Interrupted at any point, it goes on where it was.
 *
 * @returns a line for the user
 * @throws Refused when the former data is not there any more
 */
export async function exchangeData(
  executor: Executor,
  { spec, paths }: NewInstance,
  upgrade: Upgrade,
): Promise<string> {
  const { machine } = executor;
  const { id } = spec;
  const service = machine.layout.service(id);
  const found = await markerOfService(executor, id);
  const places = placesOf(executor, id, upgrade);
  const isBack = found.upgrade === upgrade.id;
  const exchange = found.exchange ?? formerOrRefuse(executor, spec, upgrade, places.former);
  await stopAll(executor, id);
  if (found.exchange === null) await writeMarker(service, { ...found, exchange });
  const [incoming, outgoing] = isBack
    ? [places.former, places.undone]
    : [places.made, places.former];
  await mkdir(outgoing, { recursive: true, mode: 0o700 });
  for (const n of await instanceNumbers(machine, id)) {
    const instance = machine.layout.member(id, n);
    // Standbys are seeded again.
    if (instance.root !== paths.root) await discard(machine, id, instance.data);
  }
  for (const { name, path } of itemsOf(paths)) {
    const [from, to] = [join(incoming, name), join(outgoing, name)];
    // The former data is there: it has left already, and the data at `path` has come in.
    if (!entryExists(to)) await (entryExists(path) ? rename(path, to) : mkdir(to));
    if (entryExists(from)) await rename(from, path);
  }
  const owner = ownerOf(machine, paths);
  await linkBeside(owner, join(outgoing, 'archive'), paths.archive, `${id}-${upgrade.id}`);
  await makeInstanceDirectories(owner, paths);
  await discard(machine, id, incoming);
  await executor.flush();
  await writeMarker(service, {
    ...found,
    installation: exchange.installation,
    upgrade: isBack ? upgrade.before : upgrade.id,
    exchange: null,
  });
  if (upgrade.reset !== undefined) {
    // A failure leaves it to the next round of the backups.
    removeReplaced(machine, id).catch(() => undefined);
    return 'the data of before is removed';
  }
  const replaced = isBack ? 'the data since the upgrade' : 'the former data, with its snapshots,';
  return `${replaced} stays for the time in which a deleted service can be restored`;
}

/** @throws Refused when there is no data to come back, or no PostgreSQL for it */
function formerOrRefuse(
  { machine }: Executor,
  { addons }: Pick<PlacedSpec, 'addons'>,
  { id, to }: Upgrade,
  former: string,
): NonNullable<Marker['exchange']> {
  if (!existsSync(join(former, '0')))
    throw new Refused('the data from before the upgrade was removed: it is kept for a while only');
  const { usable } = machine.installations;
  const installation = installationFor(usable, addons, to);
  if (installation === null) throw new Refused(missingFor(usable, addons, to));
  return { upgrade: id, installation: installation.name };
}

/**
 * Copies the data of a running service into a newer version, and removes the copy.
 *
 * @throws what `signal` was aborted with; Error with the reason why it cannot be upgraded
 */
export async function tryUpgrade(
  executor: Executor,
  spec: ServiceSpec,
  major: number,
  runStep: RunStep,
  signal: AbortSignal,
): Promise<void> {
  const { machine, templates, rounds } = executor;
  const { id } = spec;
  const paths = primaryPaths(machine, id);
  const marker = await markerOfService(executor, id);
  const installations = machine.installations.usable;
  const from = installationOf(installations, marker, { addons: [], major: majorOf(marker) });
  if (from === null) throw new Error(missingFor(installations, [], majorOf(marker)));
  const to = newerOrRefuse(executor, spec, major);
  // The group of a server that it does not have: the trial takes nothing from the service.
  const group = memberKey(id, MAX_REPLICAS + 1);
  const owner = ownerOf(machine, paths);
  const target = join(machine.layout.scratch, `${id}-tried`);
  try {
    await runStep(TRIAL_STEP, async () => {
      const tried = { ...spec, group };
      const conversion = { machine, templates, rounds, spec: tried, owner, from, to, signal };
      const done = await convert(conversion, cloneOfRunning(executor, paths, id, signal), target);
      return `${done}${await describeLoss(executor, id)}`;
    });
  } finally {
    await discard(machine, id, target);
    machine.shares.remove(group);
    await removeLimits(machine.limits, group);
  }
}
