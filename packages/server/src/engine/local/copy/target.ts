/** The target of moves on this machine: what it can take, and what its copies have. */
import { existsSync } from 'node:fs';
import { arch } from 'node:process';
import { messageOf } from '@howdah/contract/thrown';
import { EngineUnavailable } from '../../engine.ts';
import type { CopyPosition, ExtensionVersion, MoveRoles, MoveTargetRegion } from '../../moves.ts';
import { POOLER_ROLE } from '../../pooler/lookup.ts';
import type { ServiceSpec } from '../../spec.ts';
import { READER_ROLE } from '../../statements/session.ts';
import { readMarker } from '../host/marker.ts';
import type { Local } from '../local.ts';
import { readControlFiles } from '../postgres/extension-files.ts';
import { CONTROL_ROLE, PROBE_ROLE } from '../../postgres/roles.ts';
import { installationOf, presentOf } from '../postgres/installations.ts';
import { findShutdown } from '../../postgres/data/wal-end.ts';
import { findBaseBackup, endBackup, forgetBackup } from './base-backup.ts';
import { hasCopy, prepareCopy, readBegun, forgetLogin, forgetBegun } from './copy-directory.ts';
import { discard } from '../host/clone.ts';
import { forgetFollowed } from '../host/followed-server.ts';
import type { InstancePaths } from '../host/layout.ts';
import { releaseUser } from '../host/users.ts';
import { fence, findServer } from '../postgres/server.ts';
import type { Topology } from '../topology/context.ts';
import { stopInstance } from '../topology/start-stop.ts';

type Place = Pick<Local, 'machine' | 'topology'>;

/** Kubernetes' names of architectures that Node.js names in another way. */
const ARCHITECTURES: Readonly<Record<string, string>> = { x64: 'amd64' };
export const architecture = (): string => ARCHITECTURES[arch] ?? arch;

/** A copy logs in with a certificate: it needs no roles. */
const NO_ROLES: MoveRoles = {
  reserved: [CONTROL_ROLE, PROBE_ROLE, READER_ROLE, POOLER_ROLE],
  roles: [],
  databases: [],
};

export function createMoveTarget(local: Place): MoveTargetRegion {
  const { machine } = local;
  return {
    describe: () => describeTarget(local),
    versions: (id) => readVersions(local, id).catch(throwUnavailable),
    prepare: async (spec, { certificate }) => {
      if (certificate !== null) await prepare(local, spec, certificate).catch(throwUnavailable);
      return NO_ROLES;
    },
    position: (id) => readPosition(local, id).catch(throwUnavailable),
    finish: ({ id }) => forgetCopy(machine.layout.service(id)).catch(throwUnavailable),
  };
}

function throwUnavailable(error: unknown): never {
  if (error instanceof EngineUnavailable) throw error;
  const reason = messageOf(error);
  throw new EngineUnavailable(reason, { cause: error });
}

async function describeTarget({ machine }: Place) {
  const present = presentOf(machine.installations.usable);
  const extensions: Record<number, string[]> = {};
  for (const installation of present) {
    const names = (await readControlFiles(installation)).map(({ name }) => name);
    const before = extensions[installation.major] ?? [];
    extensions[installation.major] = [...new Set([...before, ...names])];
  }
  const majors = present.map(({ major }) => major);
  return {
    architectures: [architecture()],
    // Which version of a module there is depends on the installation.
    modules: [],
    extensions,
    ownRoles: NO_ROLES.reserved,
    missing: findBaseBackup(present, Math.min(...majors)) === null ? ['pg_basebackup'] : [],
  };
}

/** By the files of its PostgreSQL: it accepts no sessions. */
async function readVersions({ machine }: Place, id: string): Promise<ExtensionVersion[]> {
  const marker = await readMarker(machine.layout.copy(id));
  const present = presentOf(machine.installations.usable);
  const installation =
    marker === null ? null : installationOf(present, marker, { addons: [], major: null });
  if (installation === null) throw new Error('its PostgreSQL is not installed any more');
  return (await readControlFiles(installation)).flatMap(({ name, reachable }) =>
    reachable.map((version) => ({ name, version })),
  );
}

async function prepare(
  { machine, topology }: Place,
  spec: ServiceSpec,
  certificate: Parameters<typeof prepareCopy>[2],
): Promise<void> {
  await prepareCopy(machine, spec, certificate);
  await topology.renewEgress();
}

const GONE: CopyPosition = {
  isFollowing: false,
  awaitsRestart: false,
  replayed: 0n,
  hasShutdown: false,
};

async function readPosition({ machine }: Place, id: string): Promise<CopyPosition> {
  const paths = machine.layout.copy(id);
  if (!hasCopy(machine, id) || readBegun(paths) !== null) return GONE;
  const shutdown = existsSync(paths.data) ? await findShutdown(paths.data) : null;
  return {
    isFollowing: true,
    awaitsRestart: false,
    replayed: shutdown ?? 0n,
    hasShutdown: shutdown !== null,
  };
}

// Removes the copy of a service that does not move any more.

/** Ends all that runs of a copy, and removes its files. */
export async function removeCopy(
  { machine, executor, renewEgress }: Pick<Topology, 'machine' | 'executor' | 'renewEgress'>,
  id: string,
): Promise<void> {
  const paths = machine.layout.copy(id);
  const [server, marker] = [await findServer(paths), await readMarker(paths)];
  await endBackup(paths);
  if (server !== null) await stopInstance(executor, id, paths, server, 'immediate');
  if (!(await fence(paths))) throw new Error('the server of the copy does not end');
  await forgetFollowed(paths);
  await renewEgress();
  await discard(machine, id, paths.root);
  if (machine.isolation.isolated && marker !== null && marker.uid !== null)
    await releaseUser(machine.isolation.users, marker.uid, paths.root);
}

/** Removes the files that only a copy needs from the directory of the service that it became. */
async function forgetCopy(paths: InstancePaths): Promise<void> {
  await forgetLogin(paths);
  await forgetBackup(paths);
  await forgetBegun(paths);
}
