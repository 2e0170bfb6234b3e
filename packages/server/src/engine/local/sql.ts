/** The sessions that the control plane opens for its users. */
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf } from '@howdah/contract/thrown';
import { EngineUnavailable, type PasswordChange, type Sql } from '../engine.ts';
import { findDaemon } from './host/daemon.ts';
import { memberKey, type InstancePaths } from './host/layout.ts';
import { portOf } from './primary-session.ts';
import type { Local } from './local.ts';
import { ownerOf } from './host/users.ts';
import { readMarker } from './host/marker.ts';
import { MAINTENANCE_DATABASE } from '../postgres/roles.ts';
import { installationOf, missingFor, presentOf } from './postgres/installations.ts';
import { NoAnswer } from '../postgres/sessions/monitor.ts';
import { adminSessions } from './postgres/logins.ts';
import { endSessionsOfAdminInStandby } from '../postgres/sessions/older-sessions.ts';
import { openByPassword, setPassword } from '../postgres/sessions/password.ts';
import { findServer } from './postgres/server.ts';
import { clearForSingleUser, runSingleUser } from './postgres/single-user.ts';
import { stopPooler, whyNoPoolerRole } from './proxy/pooler.ts';
import { firstNode, instanceNumbers, primaryPaths } from './topology/instances.ts';

export function createSql(local: Local): Sql {
  const { machine, reader } = local;
  const wake = (id: string): Promise<void> => wakeFor(local, id);
  const { layout } = machine;
  return {
    setPassword: async (id, verifier, change) => {
      if (change.isPaused) return setWhilePaused(local, id, verifier);
      await wake(id);
      try {
        const position = await setPassword(
          adminSessions(primaryPaths(machine, id)),
          verifier,
          change.keepSessions,
        );
        if (!change.keepSessions) await endOlderSessions(local, id, change, position);
      } catch (error) {
        if (error instanceof NoAnswer) throw new EngineUnavailable(error.message, { cause: error });
        throw error;
      }
    },
    whyNoPooler: async (id) => {
      await wake(id);
      const paths = primaryPaths(machine, id);
      return whyNoPoolerRole(paths, await portOf(paths)).catch((error: unknown) => {
        throw unavailable(error);
      });
    },
    query: async (id, parent, statement) => {
      const primary = parent ?? id;
      await wake(primary);
      const home = placeOf(
        memberKey(primary, layout.primaryOf(primary)),
        primaryPaths(machine, primary),
      );
      const node = parent === null ? null : await firstNode(machine, id);
      const place = node === null ? home : placeOf(memberKey(id, node), layout.member(id, node));
      return reader.read(place, home, statement);
    },
  };
}

/** How long the reconciler may take to connect to a server that was woken. */
const CONNECT_WITHIN_MS = 20_000;
const CONNECT_POLL_MS = 5;

/** A sleeping server is started for what a user asks. @throws EngineUnavailable */
async function wakeFor({ topology }: Local, id: string): Promise<void> {
  const { monitor, executor } = topology;
  const relay = await executor.relays.see(id);
  if (relay === null) return;
  await executor.relays.wake(id).catch((error: unknown) => {
    throw unavailable(error);
  });
  const endMs = Date.now() + CONNECT_WITHIN_MS;
  while (!monitor.isConnected(memberKey(id, 0)) && Date.now() < endMs) await sleep(CONNECT_POLL_MS);
}

const placeOf = (key: string, paths: InstancePaths) => ({
  key,
  server: paths,
  findPort: async () => (await findServer(paths))?.port ?? null,
});

/** How long a caller waits for standbys; what is left goes on. */
const STANDBYS_WITHIN_MS = 3000;

/** Ends the sessions in the servers beside the primary, and those of poolers. */
async function endOlderSessions(
  { machine, topology }: Local,
  id: string,
  { sets }: PasswordChange,
  position: string,
): Promise<void> {
  const { layout } = machine;
  const restartPooler = async (of: string): Promise<void> => {
    const paths = layout.service(of);
    if ((await findDaemon(paths.pooler)) === null) return;
    // No view of PgBouncer shows clients that have begun to log in.
    await stopPooler(topology.poolers, paths);
    topology.changed(of);
  };
  const ofService = (await instanceNumbers(machine, id))
    .filter((n) => n !== layout.primaryOf(id))
    .map((n) => endSessionsOfAdminInStandby(adminSessions(layout.member(id, n)), position));
  const ofSets = sets.map(async (set) => {
    const nodes = await instanceNumbers(machine, set);
    const ending = nodes.map((n) =>
      endSessionsOfAdminInStandby(adminSessions(layout.member(set, n)), position),
    );
    await Promise.all(ending);
    // The pooler asks its nodes for the password.
    await restartPooler(set);
  });
  await restartPooler(id);
  const ending = Promise.all([...ofService, ...ofSets]);
  ending.catch(() => undefined);
  await Promise.race([ending, sleep(STANDBYS_WITHIN_MS, undefined, { ref: false })]);
}

/** With the recovery of a server that was killed, if it comes to that. */
const SINGLE_USER_MS = 30_000;

/** @throws EngineUnavailable */
async function setWhilePaused({ machine }: Local, id: string, verifier: string): Promise<void> {
  const paths = primaryPaths(machine, id);
  const marker = await readMarker(paths);
  if (marker?.id !== id || (await findServer(paths)) !== null)
    throw new EngineUnavailable('its data is not at rest');
  const present = presentOf(machine.installations.usable);
  const installation = installationOf(present, marker, { addons: [], major: null });
  if (installation === null) throw new EngineUnavailable(missingFor(present, [], null));
  const owner = ownerOf(machine, paths);
  try {
    await clearForSingleUser(paths);
    const at = { paths, owner, installation, size: 'shared', deadlineMs: SINGLE_USER_MS } as const;
    const statements = ['set synchronous_commit = local', openByPassword(verifier)];
    await runSingleUser(machine, at, MAINTENANCE_DATABASE, statements);
  } catch (error) {
    throw unavailable(error);
  }
}

const unavailable = (error: unknown): EngineUnavailable =>
  new EngineUnavailable(messageOf(error), { cause: error });
