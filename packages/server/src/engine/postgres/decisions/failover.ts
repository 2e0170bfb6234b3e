/**
 * Another member takes over: after the death of the primary (failover), or in order (switchover).
 *
 * The order makes it safe whatever dies in between: the old primary is ended and seen gone; the
 * metadata database say who is the primary; then, and not before, that one is promoted. Each part
 * can be done again.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { OperationStep } from '@howdah/contract';
import type { ServerPort } from '../../records.ts';
import type { Quorum, WaitedFor } from '../replication/replication-conf.ts';
import { formatLsn } from '../data/wal.ts';
import { begunStep, endOfStep } from '../../../domain/operation.ts';

export type Successor = { n: number; detail: string } | { why: string };

/** A standby as it is when the primary is dead. */
export type Candidate = {
  n: number;
  /** How far its WAL is flushed. */
  received: bigint;
};

export type Choice = {
  candidates: readonly Candidate[];
  /** The desired number of synchronous replicas. */
  sync: number;
  /** The standbys that the dead primary waited for. */
  waitedFor: WaitedFor;
  /** The end of the dead primary's WAL, or how far it was read; null: its data is missing. */
  end: bigint | null;
  /** How much may be lost without synchronous replicas, in bytes. */
  maxLostBytes: number;
};

/**
 * The standby that becomes the primary, in a failover and in a switchover: the one with the most
 * WAL; of equals the first.
 */
export function chooseStandby<T extends Pick<Candidate, 'received'>>(
  candidates: readonly T[],
): T | undefined {
  return candidates.toSorted((a, b) => Number(b.received - a.received))[0];
}

/**
 * The standby for a switchover. It takes place when all of them stream, and waits until the new
 * primary has all WAL: they are equals.
 */
export function choosePlanned<T extends { n: number }>(standbys: readonly T[]): T | undefined {
  return chooseStandby(standbys.map((standby) => ({ standby, received: 0n })))?.standby;
}

/**
 * The standby that takes over: the one with the most WAL. With synchronous replicas, only if the
 * living ones are certain to have all acknowledged writes. Without, only if what it lacks is within
 * the limit. If none can, the dead primary is started again, and nothing is lost.
 */
export function chooseSuccessor({
  candidates,
  sync,
  waitedFor,
  end,
  maxLostBytes,
}: Choice): Successor {
  const best = chooseStandby(candidates);
  if (best === undefined) return { why: 'no other member runs and follows' };
  const lostBytes = end === null ? null : end - best.received;
  if (lostBytes !== null && lostBytes <= 0n)
    return { n: best.n, detail: 'it has all that was written' };
  if (sync > 0) {
    const [why] = [waitedFor.now, ...waitedFor.before].flatMap(
      (quorum) => whyUncertain(quorum, candidates) ?? [],
    );
    return why === undefined ? { n: best.n, detail: 'it has every acknowledged write' } : { why };
  }
  if (lostBytes === null || end === null)
    return {
      why: `how much member ${best.n} lacks is not known: the data of the primary is missing`,
    };
  if (lostBytes > BigInt(maxLostBytes))
    return {
      why:
        `member ${best.n} lacks more than ${maxLostBytes} bytes of WAL, ` +
        `from ${formatLsn(best.received)} on`,
    };
  return {
    n: best.n,
    detail:
      `${lostBytes} bytes of WAL may be lost, ` +
      `${formatLsn(best.received)} to ${formatLsn(end)}`,
  };
}

/**
 * Why it is possible that no living member has a write that a quorum acknowledged; null: one of
 * them has it.
 */
function whyUncertain(quorum: Quorum, candidates: readonly Candidate[]): string | null {
  if (quorum.count === 0) return 'its synchronous replicas had not caught up yet';
  // A write is acknowledged once `count` of them have it: of this many living ones, one has every
  // acknowledged write.
  const alive = candidates.filter(({ n }) => quorum.members.includes(n)).length;
  const needed = quorum.members.length - quorum.count + 1;
  return alive >= needed
    ? null
    : `${alive} of its synchronous replicas are alive, and ${needed} are needed to be ` +
        'certain of every write';
}

/** How long a promotion may take: what was received is replayed first, whatever it takes. */
const PROMOTION_DEADLINE_MS = 600_000;

/** Promotes a standby and waits until it accepts writes. @param query runs a statement on it */
export async function promote(
  standby: ServerPort,
  query: <Row extends object>(text: string) => Promise<Row[]>,
): Promise<void> {
  const inRecovery = async (): Promise<boolean> =>
    (await query<{ recovering: boolean }>('select pg_is_in_recovery() as recovering'))[0]
      ?.recovering !== false;
  if (!(await inRecovery())) return;
  await query('select pg_promote(false)');
  const end = Date.now() + PROMOTION_DEADLINE_MS;
  while (await inRecovery()) {
    if (Date.now() > end)
      throw new Error(
        `member ${standby.n} was not promoted within ${PROMOTION_DEADLINE_MS / 1000} s`,
      );
    await sleep(2);
  }
}

// The steps of work that is recorded as a whole, when all of it is done.

/** Notes steps that are recorded when all is done. */
export function createSteps() {
  const steps: OperationStep[] = [];
  return {
    take: async <T>(
      name: string,
      work: () => Promise<T>,
      detail: (result: T) => string,
    ): Promise<T> => {
      const step = begunStep(name);
      const result = await work();
      steps.push({ ...step, ...endOfStep('ok', detail(result)) });
      return result;
    },
    done: (): OperationStep[] => steps,
  };
}
