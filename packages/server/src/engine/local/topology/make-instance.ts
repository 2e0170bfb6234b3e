/** Makes the instance of a service: from a template, or as a fork of another service. */
import { mkdir, rename } from '../host/root-files.ts';
import { findRepository } from '../../../repository/source.ts';
import type { Origin, Recovery } from '../../spec.ts';
import { forkData, rollForward } from '../backup/fork.ts';
import { convert } from '../convert/convert.ts';
import { recordInitialSnapshot } from '../backup/snapshots.ts';
import { cloneTree, removeTree } from '../host/clone.ts';
import { assertSpaceFor } from '../host/space.ts';
import { instancePaths, memberKey, type InstancePaths } from '../host/layout.ts';
import { currentBoot, markerOf, readMarker, writeMarker, type Marker } from '../host/marker.ts';
import { newOwner } from '../host/own.ts';
import type { Owner } from '../host/owner.ts';
import { SERVICE_USER } from '../host/users.ts';
import { fetchBackup } from '../repository/fetch.ts';
import type { Listener } from '../network/listener.ts';
import type { ConfigFiles } from '../postgres/files.ts';
import { writeSystemIdentifier } from '../postgres/identity.ts';
import {
  installationOf,
  majorOf,
  missingFor,
  presentOf,
  type Installation,
} from '../postgres/installations.ts';
import { makeInstanceDirectories, writeConfig } from '../postgres/server.ts';
import { extensionsOf } from '../postgres/templates.ts';
import { issueCertificate } from './configure.ts';
import type { Executor } from './executor.ts';
import type { PlacedSpec } from './placed-spec.ts';

/** A clone of a template takes at most this much. */
const CLONE_BYTES = 80e6;

/** An instance that does not exist yet, and what it is made with. */
export type NewInstance = {
  readonly spec: PlacedSpec;
  readonly paths: InstancePaths;
  readonly installation: Installation;
  /** Its files, for the user that it will run as. */
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
        await cloneTree(template.data, unfinished.data, machine.cloneMethod, owner);
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
): Promise<string> {
  const { machine, templates } = executor;
  const { spec, installation: to } = instance;
  const parent = parentOf(executor, origin);
  const marker = await readMarker(parent);
  if (marker === null) throw new Error(`its parent ${origin.parent} is no longer there`);
  const from = olderInstallation(machine, marker, to);
  let detail = '';
  await make(executor, instance, null, async (unfinished, owner) => {
    const fork = (target: string): Promise<string> =>
      forkData(machine, owner, parent, target, origin, () => writeMark(executor, origin));
    detail =
      from === null
        ? await fork(unfinished.data)
        : await convert({ machine, templates, spec, owner, from, to }, fork, unfinished.data);
  });
  return detail;
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
 * Makes an instance of the backups of its service in a repository. Its server rolls forward over
 * all the WAL that is there.
 *
 * @returns a line for the user
 * @throws RepositoryProblem
 */
export async function recoverInstance(
  executor: Executor,
  instance: NewInstance,
  { repository: repositoryId }: Recovery,
): Promise<string> {
  const { machine, repositories } = executor;
  const { id } = instance.spec;
  const { program, repository } = await findRepository(repositories, repositoryId);
  const begunMs = Date.now();
  let taken = '';
  await make(executor, instance, null, async (unfinished, owner) => {
    const { snapshot } = await fetchBackup(
      { machine, program },
      id,
      repository,
      unfinished,
      owner,
      'newest',
      () => undefined,
      new AbortController().signal,
    );
    taken = new Date(snapshot.takenMs).toISOString();
    await rollForward(machine, owner, unfinished, snapshot, unfinished.data);
  });
  const ms = Date.now() - begunMs;
  return `backup of ${taken} and the WAL after it from ${repository.name} in ${ms} ms`;
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
  fill: (unfinished: InstancePaths, owner: Owner | null) => Promise<void>,
): Promise<void> {
  const unfinished = instancePaths(`${paths.root}.new`);
  await removeTree(unfinished.root, machine.cloneMethod);
  await mkdir(unfinished.root, { mode: 0o710 });
  const owner = await newOwner(machine, paths, ahead);
  try {
    await makeInstanceDirectories(owner, unfinished);
    await allDone([
      // First: once the marker names the parent, nothing that a fork needs of it is removed.
      currentBoot().then((madeIn) =>
        writeMarker(unfinished, {
          id: spec.id,
          installation: installation.name,
          provisioned: false,
          parent: spec.origin?.parent ?? null,
          madeIn,
          uid: owner?.name === SERVICE_USER ? owner.uid : null,
          userOf: null,
        }),
      ),
      fill(unfinished, owner),
      issueCertificate(issuer, listener).then((certificate) =>
        writeConfig(owner, unfinished, { ...filesAs(owner), ...certificate }),
      ),
    ]);
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
