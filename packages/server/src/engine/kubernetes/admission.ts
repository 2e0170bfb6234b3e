/**
 * Whether the cluster accepts changes of a Cluster now. The webhooks of the operator have the
 * failure policy Fail: without the operator, each write is refused (docs/cloudnativepg.md, fact 4).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Type } from 'typebox';
import type { Kube, Manifest } from './api/client.ts';
import { KubeError } from './api/errors.ts';
import { KINDS } from './api/kinds.ts';
import type { Cache } from './cache.ts';
import { NO_ANSWER } from './unavailable.ts';

/** The parts of a region that are asked. */
export type Asked = Readonly<{ kube: Kube; cache: Pick<Cache, 'ready' | 'staleWhy'> }>;

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
