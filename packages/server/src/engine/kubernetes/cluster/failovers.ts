/**
 * Records the primaries that CloudNativePG chooses, and reports the failovers that it makes. The
 * operator decides by itself, so a primary is recorded once it is seen.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { endOfStep } from '../../../domain/operation.ts';
import type { ClusterRecords } from '../../records.ts';
import type { Cache } from '../region/cache.ts';
import { HEALTHY, phaseOf } from './decide.ts';
import type { ClusterState } from './state.ts';
import { mayChangePrimary, STEPS } from './steps.ts';

/** How often a failover is looked at. */
const POLL_MS = 200;
/** A failover that takes longer is shown as failed, with the state of the Cluster. */
const SHOW_AFTER_MS = 120_000;

/** The work that a Cluster needs: none, a record of its primary, or a report. */
export type Finding = 'nothing' | 'record' | 'failover';

/**
 * @param recorded the recorded primary
 * @param isRehearsing whether a drill changes the primary
 */
export function findingOf(
  cluster: ClusterState,
  recorded: number | null,
  isRehearsing: boolean,
): Finding {
  const { primary, desired, leaving, instances, awaited, isChangingPrimary } = cluster;
  // Which node of a set the others follow does not matter to anybody.
  if (desired === null || desired.set !== undefined) return 'nothing';
  if (leaving || primary === null || instances === 1) return 'nothing';
  const isOther = primary !== recorded;
  if (!desired.running || isRehearsing || mayChangePrimary(awaited))
    return isOther && !isChangingPrimary ? 'record' : 'nothing';
  // The phase of a failover stays for a moment after its end, so that it is not asked.
  return isOther || isChangingPrimary ? 'failover' : 'nothing';
}

export type Failovers = Readonly<{
  /** Looks at a service whose Cluster or pods have changed. */
  notice: (id: string) => void;
  /** Whether a failover of it is being reported. */
  isRunning: (id: string) => boolean;
  /** Runs a drill, of which no failover is reported. */
  rehearse: <T>(id: string, work: () => Promise<T>) => Promise<T>;
  /** Records the primary of a Cluster, if it is another one. */
  record: (id: string, cluster: ClusterState) => Promise<void>;
  close: () => Promise<void>;
}>;

type Parts = Readonly<{
  cache: Pick<Cache, 'cluster'>;
  records: ClusterRecords;
  /** Whether PostgreSQL answers at the endpoint. */
  answers: (cluster: ClusterState) => Promise<boolean>;
  /** Called with the id of a service that has another primary. */
  primaryChanged: (id: string) => void;
  /** Called with the error of a report, which the next change of the Cluster begins again. */
  failed: (error: unknown) => void;
}>;

export function createFailovers(parts: Parts): Failovers {
  const { cache, records, answers, failed } = parts;
  const ending = new AbortController();
  const { signal } = ending;
  const reports = new Map<string, Promise<void>>();
  const failing = new Set<string>();
  const rehearsing = new Set<string>();
  /** The recorded primaries, as they were last read. */
  const recorded = new Map<string, number>();

  const record = async (id: string, { primary }: ClusterState): Promise<void> => {
    const before = (await records.read(id))?.primary ?? null;
    if (before === null || primary === null) return;
    if (before !== primary) {
      await records.recordPrimary(id, before, primary);
      parts.primaryChanged(id);
    }
    recorded.set(id, primary);
  };
  /** @returns whether it ended as it must, so that the next finding is another one */
  const report = async (id: string): Promise<boolean> => {
    const before = (await records.read(id))?.primary ?? null;
    const cluster = cache.cluster(id);
    if (before === null || cluster === null) return false;
    recorded.set(id, before);
    switch (findingOf(cluster, before, rehearsing.has(id))) {
      case 'nothing':
        return false;
      case 'record':
        await record(id, cluster);
        return true;
      case 'failover':
        failing.add(id);
        await followFailover({ cache, records, answers, record }, { id, before, signal });
        return true;
    }
  };
  const notice = (id: string): void => {
    const cluster = cache.cluster(id);
    if (cluster === null) recorded.delete(id);
    if (cluster === null || signal.aborted || reports.has(id)) return;
    const known = recorded.get(id) ?? null;
    if (findingOf(cluster, known, rehearsing.has(id)) === 'nothing') return;
    const work = report(id)
      .catch((error: unknown) => {
        failed(error);
        return false;
      })
      .then((isDone) => {
        reports.delete(id);
        failing.delete(id);
        // Changes that came meanwhile were not noticed.
        return isDone ? notice(id) : undefined;
      });
    reports.set(id, work);
  };
  return {
    notice,
    isRunning: (id) => failing.has(id),
    rehearse: async (id, work) => {
      rehearsing.add(id);
      try {
        return await work();
      } finally {
        rehearsing.delete(id);
      }
    },
    record,
    close: async () => {
      ending.abort();
      await Promise.all(reports.values());
    },
  };
}

type Following = Omit<Parts, 'failed' | 'primaryChanged'> & Pick<Failovers, 'record'>;
type Failover = Readonly<{ id: string; before: number; signal: AbortSignal }>;

/** Shows a failover, records the primary as soon as it is seen, and shows the end. */
async function followFailover(
  { cache, records, answers, record }: Following,
  { id, before, signal }: Failover,
): Promise<void> {
  const started = new Date();
  const end = (detail: string, why: string | null): Promise<void> =>
    records.end(
      id,
      [
        {
          name: STEPS.failOver,
          started: started.toISOString(),
          ...endOfStep(why === null ? 'ok' : 'failed', detail),
        },
      ],
      why,
    );
  let isShown = true;
  await records.begin(id);
  while (!signal.aborted) {
    const cluster = cache.cluster(id);
    // Another operation has taken its place.
    if (cluster === null || cluster.leaving || cluster.desired?.running !== true) return;
    if (cluster.primary !== before) await record(id, cluster);
    if (hasPrimary(cluster, before) && (await answers(cluster))) {
      const { primary } = cluster;
      return end(
        primary === before
          ? `member ${before} is the primary again, no standby took over`
          : `member ${primary} is the primary`,
        null,
      );
    }
    if (isShown && Date.now() - started.getTime() > SHOW_AFTER_MS) {
      isShown = false;
      await end('no standby took over yet', phaseOf(cluster));
    }
    await sleep(POLL_MS, undefined, { signal }).catch(() => undefined);
  }
}

/**
 * Whether the change of a primary is over. The wanted primary returns to the old one for moments
 * (docs/cloudnativepg.md, fact 17), so that the old one counts only in a healthy Cluster.
 */
function hasPrimary({ primary, phase, isChangingPrimary }: ClusterState, before: number): boolean {
  return !isChangingPrimary && (primary !== before || phase === HEALTHY);
}
