/** One step of a service towards its spec, or towards its removal. */
import { EngineUnavailable, type BeginStep, type Seen, type Verdict } from '../../engine.ts';
import type { ServiceSpec } from '../../spec.ts';
import { KubeError } from '../api/errors.ts';
import { KINDS } from '../api/kinds.ts';
import { FENCED, FENCED_ALL } from '../manifests/cluster.ts';
import { AWAITED, clusterName, originSnapshot } from '../manifests/names.ts';
import { nameOf } from '../storage-classes.ts';
import type { Region } from '../region.ts';
import { askChallenge, saltOf } from './challenge.ts';
import { newestSnapshot } from './backup-state.ts';
import { requestPrimary, runDrill } from './change-primary.ts';
import { decide, type Known, type Step } from './decide.ts';
import { mayHaveSnapshot } from './fork.ts';
import { findLeftovers, placesIn, writeObjects } from './objects.ts';
import { PROVISIONED, type Observed } from './observed.ts';
import { knownPooler, removePooler, startPooler, stopPooler } from './pooler.ts';
import {
  endOriginSnapshot,
  findOriginSnapshot,
  ownOriginSnapshot,
  removeOriginSnapshot,
  takeOriginSnapshot,
} from './snapshots.ts';
import { STEPS } from './steps.ts';

/** How soon a step that could not be made is tried again. */
const RETRY_MS = 1000;
/** Something that keeps a step from being made is shown once it has lasted this long. */
const OBSTACLE_MS = 15_000;
/** CloudNativePG may take this long for a step before it is shown that it does not end. */
const STEP_MS = 180_000;
/** A copy of a parent's data may take longer, by this for each gigabyte of the volume. */
const COPY_GIGABYTE_MS = 20_000;
/** The port of a server that has just started is open within a second or two. */
const CONNECT_AGAIN_MS = 200;

/** Makes one step towards the spec. */
export async function convergeOnce(
  region: Region,
  spec: ServiceSpec,
  begin: BeginStep,
): Promise<Verdict> {
  // Otherwise a Cluster would be written without the class, and again with it.
  await region.classesRead;
  const observed = observe(region, spec.id, spec.origin?.parent);
  const seen = seenOf(region, spec.id, observed);
  const stale = region.cache.staleWhy();
  if (stale !== null)
    return (
      overdue(region, spec.id, 'read the cluster', OBSTACLE_MS, { seen, why: stale }) ??
      again(seen, stale)
    );
  const { projectId } = spec;
  if (projectId === null)
    return { did: null, detail: null, seen, outcome: 'failed', reason: NO_SPARES, isFinal: true };
  let snapshot: Observed['snapshot'] = null;
  if (mayHaveSnapshot(spec, observed.cluster))
    try {
      snapshot = await findOriginSnapshot(region, spec.id);
    } catch (error) {
      return failed(region, spec.id, STEPS.create, seen, error);
    }
  const owned = { ...spec, projectId };
  const step = decide(spec, { ...observed, snapshot }, await knownOf(region, owned, observed));
  switch (step.kind) {
    case 'settled':
      region.waiting.delete(spec.id);
      return { did: null, detail: null, seen, outcome: 'settled' };
    case 'wait':
      return (
        overdue(region, spec.id, step.what, step.isObstacle ? OBSTACLE_MS : limitOf(spec), {
          seen,
          why: step.why,
        }) ?? again(seen, step.why, step.waitMs)
      );
    case 'refuse':
      return { did: null, detail: null, seen, outcome: 'failed', reason: step.why };
    default:
      await begin(step.name, seen);
      return perform(region, owned, step, seen);
  }
}

/** How long CloudNativePG may take for a step. */
const limitOf = ({ origin, provisioned, storageGb }: ServiceSpec): number =>
  STEP_MS + (origin === null || provisioned ? 0 : storageGb * COPY_GIGABYTE_MS);

async function knownOf(region: Region, spec: Owned, { cluster }: Observed): Promise<Known> {
  const { reached, waiting, failovers, records, snapshotClass } = region;
  const { id, ha } = spec;
  const waits = waiting.get(id);
  return {
    isReachable: reached.has(id),
    isFailingOver: failovers.isRunning(id),
    // A failover since the spec was read has satisfied the request.
    isSwitchoverAsked: ha?.switchover === true && (await records.read(id))?.switchover === true,
    // A class that is gone for a moment changes no Cluster.
    snapshotClass: nameOf(snapshotClass()) ?? cluster?.desired?.snapshotClass ?? null,
    waitedMs:
      waits !== undefined && waits.what === cluster?.awaited ? Date.now() - waits.sinceMs : 0,
    pooler: knownPooler(region, spec, cluster),
  };
}

const NO_SPARES =
  'a service on Kubernetes is in the namespace of its project, and this one has none';

const again = (seen: Seen, detail: string, waitMs = RETRY_MS): Verdict => ({
  did: null,
  detail,
  seen,
  outcome: 'again',
  waitMs,
});

/**
 * Fails a step that waits for too long: the reason is shown, and the step is tried again.
 *
 * @param what for what it waits: another thing may take as long again
 * @returns null: it is not too long
 */
function overdue(
  { waiting }: Region,
  id: string,
  what: string,
  limitMs: number,
  { seen, why }: { seen: Seen; why: string },
): Verdict | null {
  const before = waiting.get(id);
  const sinceMs = before?.what === what ? before.sinceMs : Date.now();
  waiting.set(id, { what, sinceMs });
  if (Date.now() - sinceMs < limitMs) return null;
  return { did: null, detail: why, seen, outcome: 'failed', reason: `${what}: ${why}` };
}

type Owned = ServiceSpec & { readonly projectId: string };
type Work = Exclude<Step, { kind: 'settled' | 'wait' | 'refuse' }>;

async function perform(region: Region, spec: Owned, step: Work, seen: Seen): Promise<Verdict> {
  const after = (did: string | null, detail: string): Verdict => ({
    did,
    detail,
    seen: seenOf(region, spec.id, observe(region, spec.id)),
    outcome: 'again',
    waitMs: 0,
  });
  const { cluster } = observe(region, spec.id);
  try {
    switch (step.kind) {
      case 'write':
        region.reached.delete(spec.id);
        // First: a Cluster that must run is not left without PostgreSQL.
        if (cluster?.fenced === true && spec.power === 'running')
          await annotate(region, spec, { [FENCED]: null });
        // First: nothing would look for it later.
        if (step.name === STEPS.detach && cluster?.desired?.snapshot === originSnapshot(spec.id))
          await removeOriginSnapshot(region, spec);
        // In this order: the end of a change that was not written would never come.
        await writeObjects(region, spec, spec.projectId, step.desired);
        if (step.desired.snapshot === originSnapshot(spec.id))
          await ownOriginSnapshot(region, spec);
        // Disabled while the service was paused.
        if (spec.pooler === null && region.cache.pooler(spec.id) !== null)
          await removePooler(region, spec);
        if (!step.awaits) return after(step.name, step.detail);
        await annotate(region, spec, { [AWAITED]: step.name });
        return after(null, step.detail);
      case 'snapshot':
        await takeOriginSnapshot(region, spec, step);
        return after(null, `of the volume of ${step.parent}`);
      case 'taken':
        await endOriginSnapshot(region, spec);
        region.waiting.delete(spec.id);
        return after(step.name, `of the volume of ${spec.origin?.parent ?? ''}`);
      case 'expect':
        region.reached.delete(spec.id);
        await annotate(region, spec, { [AWAITED]: step.name });
        return after(null, 'CloudNativePG starts it');
      case 'ended':
        // Before the step has ended: its change of the primary is no failover.
        if (cluster !== null && cluster.instances > 1)
          await region.failovers.record(spec.id, cluster);
        await annotate(region, spec, { [AWAITED]: null });
        region.waiting.delete(spec.id);
        return after(step.name, step.detail);
      case 'connect':
        await connect(region, spec, cluster?.provisioned ?? false);
        if (spec.allowedNetworks !== null)
          await region.guard.enforce(spec.id, spec.allowedNetworks);
        await annotate(region, spec, { [PROVISIONED]: 'true' });
        region.reached.add(spec.id);
        return after(step.name, `${spec.endpoint.host}:${spec.endpoint.port}`);
      case 'fence':
        await annotate(region, spec, { [FENCED]: FENCED_ALL });
        return after(null, 'not all servers are healthy: PostgreSQL is stopped in their pods');
      case 'expectSilence':
        return await expectSilence(region, spec, step.name, seen);
      case 'startPooler':
        return await bringUpPooler(region, spec, step.name, seen, after);
      case 'stopPooler':
        return after(
          step.name,
          cluster === null ? 'its Cluster is gone' : await stopPooler(region, spec, cluster),
        );
      case 'switchOver':
      case 'drill':
        return await changePrimary(region, spec, step, after);
    }
  } catch (error) {
    return failed(region, spec.id, step.name, seen, error);
  }
}

/**
 * Has PostgreSQL answer at the endpoint, of a new service with its first password: before the
 * operator sets that, a fork lets in with the password of its parent.
 *
 * @throws EngineUnavailable with the reason
 */
async function connect(
  { authority }: Region,
  { endpoint, firstVerifier, provisioned, allowedNetworks }: Owned,
  isProvisioned: boolean,
): Promise<void> {
  const challenge = await askChallenge(endpoint, authority.certificatePem).catch(
    (error: unknown) => {
      if (allowedNetworks === null || !(error instanceof EngineUnavailable)) throw error;
      throw new EngineUnavailable(`${error.message}${ONE_NODE}`, { cause: error });
    },
  );
  if (challenge.kind === 'disallowed' && allowedNetworks === null)
    throw new EngineUnavailable('PostgreSQL has not loaded yet that all networks are allowed');
  if (provisioned || isProvisioned || firstVerifier === null || challenge.kind === 'disallowed')
    return;
  if (challenge.salt !== saltOf(firstVerifier))
    throw new EngineUnavailable('CloudNativePG has not set its password yet');
}

const ONE_NODE =
  '; a service with allowed networks answers at the node of its primary only, so the host of the ' +
  'region must lead to that one';

/** Ends a stop once no server answers: a fenced server is ready (docs/cloudnativepg.md, fact 3). */
async function expectSilence(
  region: Region,
  spec: Owned,
  name: string,
  seen: Seen,
): Promise<Verdict> {
  const answers = await askChallenge(spec.endpoint, region.authority.certificatePem).then(
    () => true,
    () => false,
  );
  if (answers)
    return (
      overdue(region, spec.id, name, STEP_MS, { seen, why: STILL_ANSWERS }) ??
      again(seen, STILL_ANSWERS)
    );
  await annotate(region, spec, { [AWAITED]: null });
  region.waiting.delete(spec.id);
  const detail = 'PostgreSQL is stopped in its pods, which stay: not all of them were healthy';
  return { did: name, detail, seen, outcome: 'again', waitMs: 0 };
}

const STILL_ANSWERS = 'PostgreSQL still answers at the endpoint, and must be stopped';

type After = (did: string | null, detail: string) => Verdict;

async function bringUpPooler(
  region: Region,
  spec: Owned,
  name: string,
  seen: Seen,
  after: After,
): Promise<Verdict> {
  const { cluster } = observe(region, spec.id);
  if (cluster === null) return after(null, 'its Cluster is gone');
  const waits = await startPooler(region, spec, cluster, name);
  if (waits !== null) {
    const { why, isObstacle } = waits;
    return (
      overdue(region, spec.id, name, isObstacle ? OBSTACLE_MS : STEP_MS, { seen, why }) ??
      again(seen, why, CONNECT_AGAIN_MS)
    );
  }
  region.waiting.delete(spec.id);
  return after(name, `port ${spec.pooler?.port}`);
}

async function changePrimary(
  region: Region,
  spec: Owned,
  step: Extract<Step, { kind: 'switchOver' | 'drill' }>,
  after: After,
): Promise<Verdict> {
  const { cluster } = observe(region, spec.id);
  if (cluster === null) return after(null, 'its Cluster is gone');
  if (step.kind === 'drill') {
    // Taken before it begins: one that is interrupted does not kill another primary.
    if (!(await region.records.takeDrill(spec.id))) return after(null, 'the drill is over');
    region.reached.delete(spec.id);
    return after(step.name, await runDrill(region, spec, cluster, step));
  }
  region.reached.delete(spec.id);
  // First: its end is waited for also by a control plane that does not know of the request.
  if (cluster.awaited !== step.name) await annotate(region, spec, { [AWAITED]: step.name });
  await requestPrimary(region, spec.id, step.to);
  return after(null, `CloudNativePG makes member ${step.to} the primary`);
}

/** A failure that may pass by itself fails the operation once it has lasted. */
function failed(region: Region, id: string, name: string, seen: Seen, error: unknown): Verdict {
  const why = error instanceof Error ? error.message : String(error);
  const isTemporary =
    error instanceof EngineUnavailable || (error instanceof KubeError && error.isTemporary);
  // A drill is not repeated.
  if (isTemporary && name !== STEPS.drill)
    return (
      overdue(region, id, name, OBSTACLE_MS, { seen, why }) ??
      again(seen, why, name === STEPS.connect ? CONNECT_AGAIN_MS : RETRY_MS)
    );
  return { did: name, detail: why, seen, outcome: 'failed', reason: `${name}: ${why}` };
}

/** @param annotations null removes one */
async function annotate(
  { kube, cache }: Region,
  { id, projectId }: Owned,
  annotations: Readonly<Record<string, string | null>>,
): Promise<void> {
  const place = placesIn(projectId)(KINDS.cluster, clusterName(id));
  cache.put(await kube.merge(place, { metadata: { annotations } }));
}

function observe({ cache }: Region, id: string, parent?: string): Observed {
  return {
    parent: parent === undefined ? null : cache.cluster(parent),
    cluster: cache.cluster(id),
    servers: cache.servers(id),
    obstacle: cache.obstacle(id),
    snapshot: null,
    newestSnapshot: parent === undefined ? null : newestSnapshot(cache.backups(parent)),
    pooler: cache.pooler(id),
  };
}

function seenOf({ reached, failovers }: Region, id: string, { cluster, servers }: Observed): Seen {
  const primary = cluster?.primary ?? null;
  // A standby that is ready does not have the endpoint.
  const isReady = servers.some(({ n, ready }) => ready && (primary === null || n === primary));
  return {
    reachable: reached.has(id) && isReady && !failovers.isRunning(id),
    present: cluster !== null || servers.length > 0,
    provisioned: cluster?.provisioned ?? false,
  };
}

/** Makes one step towards the removal of a service. */
export async function removeOnce(region: Region, id: string, begin: BeginStep): Promise<Verdict> {
  const { cluster, servers, pooler } = observe(region, id);
  const isEnding = servers.length > 0 || pooler !== null || region.cache.poolerPods(id).count > 0;
  const seen: Seen = {
    reachable: false,
    present: true,
    provisioned: cluster?.provisioned ?? false,
  };
  region.reached.delete(id);
  region.startingPoolers.delete(id);
  const stale = region.cache.staleWhy();
  if (stale !== null) return again(seen, stale);
  // The pooler ends with its owner, the Cluster.
  if (cluster?.leaving === true || (cluster === null && isEnding))
    return again(seen, 'its pods are ending');
  try {
    const left = await findLeftovers(region, id);
    if (cluster === null && left.length === 0)
      return { did: null, detail: null, seen: { ...seen, present: false }, outcome: 'settled' };
    await begin(STEPS.remove, seen);
    if (cluster !== null) {
      const { namespace } = cluster;
      await region.kube.remove({ kind: KINDS.cluster, namespace, name: clusterName(id) });
    }
    for (const place of left) await region.kube.remove(place);
  } catch (error) {
    return failed(region, id, STEPS.remove, seen, error);
  }
  return {
    did: STEPS.remove,
    detail: 'the Cluster with its volumes and secrets',
    seen,
    outcome: 'again',
    waitMs: RETRY_MS,
  };
}
