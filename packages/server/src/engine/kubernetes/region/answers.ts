/**
 * Whether the cluster of a region and its operator answer. A watch says nothing of an API server
 * that is cut off, and an operator that is away leaves all objects as they are: both are asked.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Type } from 'typebox';
import type { Round, Rounds } from '../../../lib/rounds.ts';
import { NO_ANSWER, KubeError } from '../api/errors.ts';
import type { Kube, Manifest } from '../api/client.ts';
import { KINDS } from '../api/kinds.ts';
import type { Cache } from './cache.ts';

/** The part of a region that does not answer, and when it last did; ms since the epoch. */
export type Away = Readonly<{
  why: string;
  /** Whether the API server answers, so that objects are known as they are. */
  isClusterSeen: boolean;
  lastMs: number | null;
}>;

export type Answers = Readonly<{
  /** null: both answer, or nobody has asked yet. */
  away: () => Away | null;
  /** Has them asked soon, since something waits for them. */
  ask: () => void;
}>;

/** A change under way has the reason within 10 s: two questions of up to 3 s each, and this. */
const ASK_AGAIN_MS = 1000;
/** A single answer that is late says nothing: the machine may be busy. */
const FAILURES = 2;

export function keepAnswers(region: Asked, rounds: Rounds): Answers & Pick<Round, 'close'> {
  let why: string | null = null;
  let failures = 0;
  let lastMs: number | null = null;
  let askedMs = 0;
  const round = rounds.every('clusterAnswers', async () => {
    why = await whyNoChanges(region);
    askedMs = Date.now();
    failures = why === null ? 0 : failures + 1;
    if (why === null) lastMs = askedMs;
  });
  round.start();
  return {
    away: () =>
      why === null || failures < FAILURES
        ? null
        : { why, isClusterSeen: why !== NO_ANSWER, lastMs },
    ask: () => {
      if (Date.now() - askedMs >= ASK_AGAIN_MS) void round.run();
    },
    close: round.close,
  };
}

// Whether the cluster accepts changes of a Cluster now. The webhooks of the operator have the
// failure policy Fail: without the operator, each write is refused (docs/cloudnativepg.md, fact 4).

/** The parts of a region that are asked. */
type Asked = Readonly<{ kube: Kube; cache: Pick<Cache, 'ready' | 'staleWhy'> }>;

/** A user waits for this answer. */
const WITHIN_MS = 3000;

/** A namespace that every cluster has. */
const NAMESPACE = 'default';

/** A Cluster that every version of the operator accepts; it is never stored. */
const PROBE: Manifest = {
  apiVersion: KINDS.cluster.apiVersion,
  kind: KINDS.cluster.kind,
  metadata: { name: 'howdah-probe', namespace: NAMESPACE },
  spec: { instances: 1, storage: { size: '1Gi' } },
};

/** Has the API server and all webhooks examine a new Cluster. @throws KubeError */
export async function tryWrite(kube: Kube, withinMs: number): Promise<void> {
  const place = { kind: KINDS.cluster, namespace: NAMESPACE, name: null };
  await kube.tryCreate(place, PROBE, AbortSignal.timeout(withinMs));
}

/** Why a change would not begin now, in words for tenants; null: it would. */
export async function whyNoChanges({ kube, cache }: Asked): Promise<string | null> {
  // A region that was just added is still being read.
  const listed = cache.ready().catch(() => undefined);
  await Promise.race([listed, sleep(WITHIN_MS, undefined, { ref: false })]);
  if (cache.staleWhy() !== null) return NO_ANSWER;
  try {
    await tryWrite(kube, WITHIN_MS);
    return null;
  } catch (error) {
    if (!(error instanceof KubeError)) throw error;
    // A refusal for good fails the operation, with its reason.
    if (!error.isTemporary) return null;
    const webhook = webhookIn(error);
    if (webhook !== null)
      return `the operator of its Kubernetes cluster does not answer (webhook ${webhook})`;
    if (error.status === null) return (await answersReads(kube)) ? NO_WEBHOOK : NO_ANSWER;
    return `its Kubernetes cluster refuses changes with the status ${error.status}`;
  }
}

/** The API server waits 10 s for a webhook whose pod has gone a moment ago. */
const NO_WEBHOOK =
  `the operator of its Kubernetes cluster does not answer (no webhook within ${WITHIN_MS / 1000} ` +
  's)';

const answersReads = ({ read }: Kube): Promise<boolean> =>
  Promise.race([
    read('/version', Type.Unknown()).then(
      () => true,
      () => false,
    ),
    sleep(WITHIN_MS, false, { ref: false }),
  ]);

/** The name of the webhook that did not answer; null: the error is another one. */
function webhookIn({ message }: KubeError): string | null {
  return /failed calling webhook "([a-z0-9.-]{1,100})"/.exec(message)?.[1] ?? null;
}
