/** Forks that become leases, or hold leases: warm ones, and new ones where none is warm. */
import { randomUUID } from 'node:crypto';
import { forkOfNow, inheritedByFork } from '../domain/service/fork.ts';
import { lifetimeOfNew } from '../domain/service/lifetime.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import { sizeOf } from '../domain/service/spec.ts';
import { EngineUnavailable } from '../engine/engine.ts';
import type { Region } from '../engine/regions.ts';
import { newPassword } from '../lib/ids.ts';
import { scramVerifier } from '../lib/scram.ts';
import { insertLeasedServer, lockWarm } from '../store/leased-servers.ts';
import { makeDue } from '../store/claims.ts';
import { insertServiceAtEndpoint } from '../store/new-services.ts';
import { beginOperation, recordOperation, type Requester } from '../store/operations.ts';
import { changeService } from '../store/services.ts';
import type { Tx } from '../store/tables.ts';
import type { Caller } from './change.ts';
import { refuseWithoutPort } from './endpoints.ts';
import { networkOfFork } from './fork-service.ts';
import { keepWithinKey } from './lifetimes.ts';
import { keepWithinLimits, weightOf } from './limits.ts';

/** A new password, and its verifier for the server. */
export type Secret = Readonly<{ password: string; verifier: string }>;

export const newSecret = async (): Promise<Secret> => {
  const password = newPassword();
  return { password, verifier: await scramVerifier(password) };
};

/**
 * Takes a fork for each secret: a warm one that has all that was committed, else a new one.
 *
 * @param of the locked service; `committed`: the transactions that had ended there; null: not known
 * @returns their ids, in the order of the secrets
 */
export async function takeForks(
  tx: Tx,
  region: Region,
  caller: Caller,
  of: Readonly<{
    parent: ServiceRow;
    committed: string | null;
    secrets: readonly Secret[];
    ttlSeconds: number;
  }>,
): Promise<string[]> {
  const { parent, committed, secrets, ttlSeconds } = of;
  await keepWithinKey(tx, caller, secrets.length);
  const weight = weightOf(sizeOf(parent), secrets.length);
  await keepWithinLimits(tx, caller.projectId, { services: secrets.length, ...weight });
  const warm = await openWarm(tx, region, caller, { parentId: parent.id, committed, secrets });
  const ids: string[] = [];
  for (const [n, secret] of secrets.entries()) {
    const isWarm = warm[n] != null;
    const fork = warm[n] ?? (await insertFork(tx, region, parent));
    await takeFork(tx, region, caller, { parent, fork, isWarm, secret, ttlSeconds });
    ids.push(fork.id);
  }
  return ids;
}

/**
 * Locks warm forks and gives them the passwords of their leases. If that is not committed, nobody
 * knows their passwords, as before.
 *
 * @returns for each secret a fork; null: none was warm, or it did not answer
 */
async function openWarm(
  tx: Tx,
  { engine }: Region,
  { dryRun }: Caller,
  of: { parentId: string; committed: string | null; secrets: readonly Secret[] },
): Promise<(ServiceRow | null)[]> {
  const { parentId, committed, secrets } = of;
  if (committed === null) return [];
  const warm = await lockWarm(tx, parentId, committed, secrets.length);
  return Promise.all(
    secrets.map(async ({ verifier }, n) => {
      const fork = warm[n];
      if (fork === undefined) return null;
      try {
        if (!dryRun) await engine.leasing?.setUnusedPassword(fork.id, verifier);
        return fork;
      } catch (error) {
        if (error instanceof EngineUnavailable) return null;
        throw error;
      }
    }),
  );
}

/** A fork that is made for a lease: none was warm. */
async function insertFork(tx: Tx, region: Region, parent: ServiceRow): Promise<ServiceRow> {
  const fork = await refuseWithoutPort(insertServiceAtEndpoint(tx, region, forkOfNow(parent)));
  await insertLeasedServer(tx, { id: fork.id, parent: parent.id, committed: null });
  return fork;
}

/**
 * Gives a fork to the caller: a service of theirs, with a password and an end. A warm one is ready
 * with that.
 */
async function takeFork(
  tx: Tx,
  region: Region,
  caller: Caller,
  taking: { parent: ServiceRow; fork: ServiceRow; isWarm: boolean } & Asked,
): Promise<void> {
  const { parent, fork, isWarm, secret, ttlSeconds } = taking;
  const { projectId, publicKey } = caller;
  const of = { id: fork.id, project_id: projectId };
  const change = {
    project_id: projectId,
    region_alias: parent.region_alias,
    name: nameOfLease(parent.name, fork.id),
    created: new Date(),
    created_by: publicKey,
    ...lifetimeOfNew(caller, { ttl_seconds: ttlSeconds, purge_on_expiry: true }, 'DEV'),
    // Each lease ends within minutes: nobody is to be warned of that.
    expiry_warning_at: null,
    first_verifier: secret.verifier,
    ...inheritedByFork(parent),
  };
  if (isWarm) {
    await recordOperation(tx, of, 'fork', requesterOf(caller));
    await changeService(tx, fork, change, null);
    return;
  }
  const operation = await beginOperation(tx, of, 'fork', requesterOf(caller), null);
  const network = await networkOfFork(tx, region, caller, fork, parent);
  await changeService(tx, fork, { ...change, ...network }, operation);
  await makeDue(tx, fork.id);
}

type Asked = Readonly<{ secret: Secret; ttlSeconds: number }>;

/**
 * The requester of the next operation of a call. Each operation has an entry in the audit log: the
 * first one that of the call, each further one a copy.
 */
export function requesterOf({ publicKey, audit }: Caller): Requester {
  if (audit === null || !audit.recorded) return { publicKey, audit };
  const facts = { ...audit.facts, request_id: randomUUID() };
  return { publicKey, audit: { facts, recorded: false } };
}

/** The name of the service of a lease, which no other service has. */
const nameOfLease = (parent: string, id: string): string =>
  `${[...parent].slice(0, NAME_OF_PARENT).join('')}-lease-${id}`;

const NAME_OF_PARENT = 100;
