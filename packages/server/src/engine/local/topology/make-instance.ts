/** Makes the instance of a service: from a template, or as a fork of another service. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { mkdir, rename } from '../host/root-files.ts';
import type { PgBackRest, Repository } from '../../../repository/repository.ts';
import { findRepository, openForeign } from '../../../repository/source.ts';
import { stanzaOf } from '../../../repository/stanzas.ts';
import type { ShowProgress } from '../../engine.ts';
import type { Origin, Recovery } from '../../spec.ts';
import { forkData, rollForward, type Forked } from '../backup/fork.ts';
import { convert } from '../convert/convert.ts';
import { asideOf } from '../backup/aside-data.ts';
import { listSnapshots, recordInitialSnapshot, type Snapshot } from '../backup/snapshots.ts';
import { cloneTree, removeTree } from '../host/clone.ts';
import { assertSpaceFor } from '../host/space.ts';
import { instancePaths, memberKey, type InstancePaths } from '../host/layout.ts';
import { currentBoot, markerOf, readMarker, writeMarker, type Marker } from '../host/marker.ts';
import { newOwner } from '../host/ownership.ts';
import { type Owner, ownerOf, SERVICE_USER } from '../host/users.ts';
import type { Machine } from '../host/machine-record.ts';
import { fetchBackup } from '../repository/fetch.ts';
import type { FetchTarget } from '../repository/fetch-wal.ts';
import { upgradeIn } from '../repository/state.ts';
import { type Listener, hostsOf } from '../network/listener.ts';
import type { ConfigFiles } from '../postgres/files.ts';
import { writeSystemIdentifier } from '../../postgres/data/identity.ts';
import {
  installationOf,
  majorOf,
  missingFor,
  presentOf,
  type Installation,
} from '../postgres/installations.ts';
import { makeInstanceDirectories, writeConfig } from '../postgres/server.ts';
import { extensionsOf } from '../../../domain/postgres/extension-rules.ts';
import type { Executor, Found } from './executor.ts';
import type { PlacedSpec } from '../../postgres/decisions/placed-spec.ts';
import { readOrNull } from '../../../lib/processes.ts';
import type { CertificateIssuer, createCertificateCheck } from '../../../lib/tls.ts';

/** A clone of a template takes at most this much. */
const CLONE_BYTES = 80e6;

/** An instance that does not exist yet, and what it is made with. */
export type NewInstance = {
  readonly spec: PlacedSpec;
  readonly paths: InstancePaths;
  readonly installation: Installation;
  /** The instance's files, for the user that it will run as. */
  readonly filesAs: (owner: Owner | null) => ConfigFiles;
  readonly listener: Listener;
};

/** Makes an instance as a clone of its template. @returns a line for the user */
export async function cloneTemplate(executor: Executor, instance: NewInstance): Promise<string> {
  const { machine, templates, precloned } = executor;
  const { spec, installation, paths } = instance;
  const template = await templates.ensure(installation, extensionsOf(spec.addons));
  await assertSpaceFor(
    machine.cloneMethod === 'copy' ? CLONE_BYTES : CLONE_BYTES / 8,
    machine.layout.services,
  );
  const begunMs = Date.now();
  let way = 'from a clone made ahead';
  await precloned.withClone(template, (ahead) =>
    make(executor, instance, ahead?.owner ?? null, async (unfinished, owner) => {
      if (ahead === null || !(await ahead.moveTo(unfinished.data))) {
        way = `by ${machine.cloneMethod}`;
        await cloneTree(template.data, unfinished.data, machine, owner);
      }
      await recordInitialSnapshot(
        unfinished,
        template.name,
        await writeSystemIdentifier(unfinished.data),
      );
    }),
  );
  beginFlush(executor, paths);
  return `PostgreSQL ${installation.version} ${way} in ${Date.now() - begunMs} ms`;
}

/** Makes an instance as a fork of another service. @returns a line for the user */
export async function cloneParent(
  executor: Executor,
  instance: NewInstance,
  origin: Origin,
  show: ShowProgress,
): Promise<string> {
  const { machine, templates, rounds } = executor;
  const { spec, installation: to } = instance;
  const parent = parentOf(executor, origin);
  const marker = await readMarker(parent);
  if (marker === null) throw new Error(`its parent ${origin.parent} is no longer there`);
  const from = olderInstallation(machine, marker, to);
  let detail = '';
  await make(executor, instance, null, async (unfinished, owner, begin) => {
    const fork = async (target: string): Promise<string> => {
      const forked = await copyParent(executor, origin, { at: unfinished, owner, target, show });
      begin(forked.moment);
      return forked.detail;
    };
    detail =
      from === null
        ? await fork(unfinished.data)
        : await convert(
            { machine, templates, rounds, spec, owner, from, to, signal: null },
            fork,
            unfinished.data,
          );
  });
  return detail;
}

/**
 * Makes the data of a fork from that of its parent.
 *
 * @param restored `at`: where what a repository has of it is fetched to
 * @throws NotYet while its parent is starting or stopping; RepositoryProblem
 */
export function copyParent(
  executor: Executor,
  origin: Origin,
  restored: Restored,
): Promise<Forked> {
  const { owner, target } = restored;
  return origin.repository === undefined
    ? forkData(executor.machine, owner, parentOf(executor, origin), target, origin, () =>
        writeMark(executor, origin),
      )
    : forkFromRepository(executor, origin, origin.repository, restored);
}

/** Whether a fork is of another major version than its parent. */
export function isConverted(
  executor: Executor,
  { installation }: NewInstance,
  origin: Origin,
): boolean {
  const marker = markerOf(parentOf(executor, origin));
  return marker !== null && majorOf(marker) !== installation.major;
}

/**
 * The PostgreSQL of a parent that is older than that of its fork; null: it is of the same major.
 *
 * @throws Error when it is not installed any more
 */
function olderInstallation(
  { installations }: Executor['machine'],
  marker: Marker,
  to: Installation,
): Installation | null {
  const major = majorOf(marker);
  if (major === to.major) return null;
  const present = presentOf(installations.usable);
  const from = installationOf(present, marker, { addons: [], major });
  if (from === null) throw new Error(missingFor(present, [], major));
  return from;
}

/**
 * Makes the data of an instance from the backups of its service. Its server rolls forward over all
 * the WAL that is there.
 *
 * @returns a line for the user
 * @throws RepositoryProblem
 */
export async function recoverInstance(
  executor: Executor,
  instance: NewInstance,
  recovery: Recovery,
  show: ShowProgress,
): Promise<string> {
  const { machine } = executor;
  const { paths, spec } = instance;
  const begunMs = Date.now();
  let source = '';
  const restore = async (at: InstancePaths, owner: Owner | null, target: string): Promise<void> => {
    source = await restoreData(executor, spec.id, recovery, { at, owner, target, show });
  };
  if (existsSync(paths.marker)) {
    const owner = ownerOf(machine, paths);
    const unfinished = `${paths.data}.new`;
    await makeInstanceDirectories(owner, paths);
    await removeTree(unfinished, machine.cloneMethod);
    await restore(paths, owner, unfinished);
    await rename(unfinished, paths.data);
  } else
    await make(executor, instance, null, (unfinished, owner) =>
      restore(unfinished, owner, unfinished.data),
    );
  beginFlush(executor, paths);
  return recovery.of === undefined ? `${source} in ${Date.now() - begunMs} ms` : source;
}

/** Where backups are fetched to, and the data directory that is made. */
export type Restored = Readonly<{
  at: InstancePaths;
  owner: Owner | null;
  target: string;
  show: ShowProgress;
}>;

/** @returns where the data came from, for the user */
async function restoreData(
  { machine, repositories }: Executor,
  id: string,
  { id: recoveryId, repository: repositoryId, at: time, upgrade = null, of }: Recovery,
  restored: Restored,
): Promise<string> {
  if (of !== undefined) {
    const from = { ...(await openForeign(repositories, of.sealed)), stanza: of.stanza };
    return copyFromRepository(machine, from, time, restored);
  }
  const { at, owner, target, show } = restored;
  const until = time === null ? 'newest' : { timeMs: Date.parse(time) };
  const found =
    repositoryId === null
      ? await newestBackup(at)
      : await fetchFrom(await findRepository(repositories, repositoryId), until, {
          machine,
          stanza: stanzaOf(id, upgrade),
          at,
          owner,
          show,
        });
  // WAL that was not archived yet is in the data that was set aside.
  const aside = asideOf(machine.layout, id, recoveryId);
  const paths = aside === null ? at : { ...at, data: aside };
  // Without a commit after the moment, all the WAL is from before it.
  const end = found.isReached ? time : null;
  await rollForward(machine, owner, paths, found.snapshot, target, end);
  const taken = new Date(found.snapshot.takenMs).toISOString();
  return `backup of ${taken} and the WAL after it from ${found.source}`;
}

/** isReached: whether the WAL has a commit after the moment that was asked for. */
type FoundBackup = { snapshot: Snapshot; isReached: boolean; source: string };

async function newestBackup(at: InstancePaths): Promise<FoundBackup> {
  const [snapshot] = await listSnapshots(at);
  if (snapshot === undefined) throw new Error('this machine has no backup of it');
  return { snapshot, isReached: false, source: 'this machine' };
}

/** A repository, and the program that reads it. */
type Opened = Readonly<{ program: PgBackRest; repository: Repository }>;

async function fetchFrom(
  { program, repository }: Opened,
  until: FetchTarget,
  {
    machine,
    stanza,
    at,
    owner,
    show,
  }: Omit<Restored, 'target'> & { machine: Machine; stanza: string },
): Promise<FoundBackup> {
  const fetched = await fetchBackup(
    { machine, program },
    stanza,
    repository,
    at,
    owner,
    until,
    show,
    new AbortController().signal,
  );
  return { ...fetched, source: repository.name };
}

/** Makes the data of a fork at a point in time of what a repository has of its parent. */
async function forkFromRepository(
  { machine, repositories }: Executor,
  { parent, targetTime }: Origin,
  repositoryId: string,
  restored: Restored,
): Promise<Forked> {
  const opened = await findRepository(repositories, repositoryId);
  const stanza = stanzaOf(parent, upgradeIn(machine.layout.service(parent)));
  const detail = await copyFromRepository(machine, { ...opened, stanza }, targetTime, restored);
  return { moment: targetTime ?? '', detail };
}

/**
 * Makes data of what a repository has of another service. Its backup and WAL are fetched beside the
 * archive of the new one, which begins with its own WAL, and are removed.
 *
 * @param targetTime the moment whose state it gets; null: the newest
 * @returns a line for the user
 * @throws RepositoryProblem
 */
async function copyFromRepository(
  machine: Machine,
  { stanza, ...opened }: Opened & { stanza: string },
  targetTime: string | null,
  { at: { root }, owner, target, show }: Restored,
): Promise<string> {
  const begunMs = Date.now();
  const at = instancePaths(join(root, 'fetched'));
  await removeTree(at.root, machine.cloneMethod);
  await mkdir(at.root, { mode: 0o710 });
  // Moments are finer than milliseconds.
  const until = targetTime === null ? 'newest' : { timeMs: Date.parse(targetTime) + 1 };
  const found = await fetchFrom(opened, until, { machine, stanza, at, owner, show });
  // Without a commit after the moment, all the WAL is from before it.
  const end = found.isReached ? targetTime : null;
  await rollForward(machine, owner, at, found.snapshot, target, end);
  await removeTree(at.root, machine.cloneMethod);
  const taken = new Date(found.snapshot.takenMs).toISOString();
  const seconds = ((Date.now() - begunMs) / 1000).toFixed(1);
  return (
    `backup of ${taken} and its WAL from ${found.source} in ${seconds} s, ` +
    `to be rolled forward to ${targetTime ?? 'its end'}`
  );
}

/** The primary of a fork's parent. */
export function parentOf(
  { machine: { layout } }: Pick<Executor, 'machine'>,
  { parent }: Origin,
): InstancePaths {
  return layout.member(parent, layout.primaryOf(parent));
}

/**
 * Writes a commit to the parent that users do not see: a recovery up to now needs one to stop at.
 */
export async function writeMark(
  { machine, monitor }: Pick<Executor, 'machine' | 'monitor'>,
  { parent }: Origin,
): Promise<void> {
  const key = memberKey(parent, machine.layout.primaryOf(parent));
  if (monitor.isConnected(key))
    await monitor.query(key, "select pg_logical_emit_message(true, 'howdah', 'fork')");
}

/**
 * Makes an instance under another name and renames it: an incomplete one is never taken for a
 * service.
 */
async function make(
  { machine, issuer }: Executor,
  { spec, paths, installation, filesAs, listener }: NewInstance,
  ahead: Owner | null,
  fill: (
    unfinished: InstancePaths,
    owner: Owner | null,
    begin: (moment: string) => void,
  ) => Promise<void>,
): Promise<void> {
  const unfinished = instancePaths(`${paths.root}.new`);
  await removeTree(unfinished.root, machine.cloneMethod);
  await mkdir(unfinished.root, { mode: 0o710 });
  const owner = await newOwner(machine, paths, ahead);
  const marker: Marker = {
    id: spec.id,
    installation: installation.name,
    provisioned: false,
    parent: spec.origin?.parent ?? null,
    began: null,
    madeIn: await currentBoot(),
    uid: owner?.name === SERVICE_USER ? owner.uid : null,
    userOf: null,
    recovery: spec.recovery?.id ?? null,
    upgrade: spec.recovery?.upgrade ?? null,
    exchange: null,
  };
  let began: string | null = null;
  try {
    await makeInstanceDirectories(owner, unfinished);
    await allDone([
      // First: once the marker names the parent, nothing that a fork needs of it is removed.
      writeMarker(unfinished, marker),
      fill(unfinished, owner, (moment) => (began = moment)),
      issueCertificate(issuer, listener).then((certificate) =>
        writeConfig(owner, unfinished, { ...filesAs(owner), ...certificate }),
      ),
    ]);
    if (began !== null) await writeMarker(unfinished, { ...marker, began });
    await rename(unfinished.root, paths.root);
  } catch (error) {
    await removeTree(unfinished.root, machine.cloneMethod);
    throw error;
  }
}

/**
 * Waits for all tasks, so that none still writes when the directory is removed.
 *
 * @throws the first error
 */
async function allDone(tasks: readonly Promise<void>[]): Promise<void> {
  await Promise.allSettled(tasks);
  await Promise.all(tasks);
}

/**
 * Begins to flush a new instance before its server starts, which would wait for the disk with each
 * of its files.
 */
export function beginFlush({ flush, flushing }: Executor, { root }: InstancePaths): void {
  const flushed = flush();
  // The error reaches the caller that waits for it.
  flushed.catch(() => undefined);
  flushing.set(root, flushed);
}

/**
 * Waits until a new instance is on the disk: no client may write what a crash of the machine could
 * lose.
 */
export async function untilOnDisk(
  { flush, flushing }: Executor,
  { root }: InstancePaths,
): Promise<void> {
  const flushed = flushing.get(root) ?? flush();
  // After a failure, the next attempt begins another flush.
  flushing.delete(root);
  await flushed;
}

// The configuration of an instance, with its certificate.

/** Writes the files of a server that does not run. */
export async function configure(
  { machine, issuer }: Executor,
  { paths, files, listener }: Found,
): Promise<void> {
  const owner = ownerOf(machine, paths);
  await makeInstanceDirectories(owner, paths);
  await writeConfig(owner, paths, { ...files, ...(await issueCertificate(issuer, listener)) });
}

/** @returns the files of a certificate for the hosts of a listener, by name */
export async function issueCertificate(
  issuer: CertificateIssuer,
  listener: Listener,
): Promise<Record<string, string>> {
  const { certificatePem, keyPem } = await issuer.take(hostsOf(listener));
  return { 'server.crt': certificatePem, 'server.key': keyPem };
}

/** Whether the files of an instance are the desired ones. */
export async function areFilesCurrent(paths: InstancePaths, files: ConfigFiles): Promise<boolean> {
  const found = await Promise.all(
    Object.keys(files).map((name) => readOrNull(join(paths.config, name))),
  );
  return Object.values(files).every((text, index) => found[index] === text);
}

/**
 * Whether an instance has a certificate for the hosts of its listener that is valid for long
 * enough.
 */
export async function isCertificateCurrent(
  certificates: ReturnType<typeof createCertificateCheck>,
  paths: InstancePaths,
  listener: Listener,
): Promise<boolean> {
  const [pem, key] = await Promise.all(
    ['server.crt', 'server.key'].map((name) => readOrNull(join(paths.config, name))),
  );
  if (typeof pem !== 'string' || typeof key !== 'string') return false;
  return certificates.isCurrent(
    paths.config,
    { certificatePem: pem, keyPem: key },
    hostsOf(listener),
  );
}
