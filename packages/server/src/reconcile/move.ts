/**
 * Moves a service to another region, step by step. The states, and a crash in each of them, are in
 * docs/decisions/0070-moves-between-regions.md: the region in the row decides who may write.
 */
import { messageOf } from '@howdah/contract/thrown';
import {
  describeLag,
  describeOutage,
  decideSwitch,
  isClose,
  isKeptTimeOver,
  isLost,
  isRestartLate,
  isSuperseded,
  isSwitchOver,
  silentFrom,
} from '../domain/service/move-progress.ts';
import { whyNotMoved } from '../domain/service/move.ts';
import { mustBeRemoved } from '../domain/service/removal.ts';
import type { Move } from '../domain/service/row.ts';
import { copySpec, serviceSpec } from '../domain/service/spec.ts';
import type { BeginStep, Seen, Verdict } from '../engine/engine.ts';
import {
  MoveRefused,
  type MoveSource,
  type MoveTargetRegion,
  type CopyProgress,
  type MovedData,
  type MovePlace,
  type MoveTarget,
} from '../engine/moves.ts';
import { type Region, RegionNotServed } from '../engine/regions.ts';
import { findKubernetesRegion } from '../store/kubernetes-regions.ts';
import { listParentsOfUnfinishedForks } from '../store/service-lists.ts';
import {
  GONE,
  giveBack,
  undo,
  again,
  failedBy,
  seenBefore,
  handOver,
  writeMove,
} from './move-abort.ts';
import { UNDER_WAY } from './concurrent-operations.ts';
import type { ReconcilerContext, Work } from './work.ts';

/** The names of steps as users read them; those of the engines come between them. */
const MOVE_STEPS = {
  prepare: 'prepare roles for the copy',
  follow: 'follow the service',
  switch: 'stop the source',
  end: 'begin to accept writes',
} as const;

const FOLLOW_POLL_MS = 500;
const SWITCH_POLL_MS = 50;

/** A service that moves, with both regions. */
type Moving = Readonly<{
  context: ReconcilerContext;
  work: Work;
  move: Move;
  begin: BeginStep;
  source: Region;
  target: Region;
  from: MoveSource;
  to: MoveTargetRegion;
}>;

/**
 * Makes one step of the move of a service.
 *
 * @returns null: the move leaves the service alone now
 */
export async function moveOnce(
  context: ReconcilerContext,
  work: Work,
  begin: BeginStep,
): Promise<Verdict | null> {
  const { move } = work.service;
  if (move === null) return null;
  const before = seenBefore(work);
  try {
    const moving = { ...movingOf(context, move), context, work, begin };
    if (isSuperseded(move, work.operation?.kind ?? null))
      return await abort(moving, SUPERSEDED, before);
    switch (move.state) {
      case 'copy':
        return await copy(moving);
      case 'switch':
        return await switchOver(moving);
      case 'abort':
        return await undo(context, work, begin, () =>
          moving.target.engine.lifecycle.remove(work.id, null, async () => undefined),
        );
      case 'moved':
        return await arrive(moving);
      case 'kept':
        return await removeSource(moving);
    }
  } catch (error) {
    if (error instanceof RegionNotServed) return withoutRegion(context, work, move, begin, error);
    return failedBy(work, error, before);
  }
}

const SUPERSEDED = 'another change has taken its place';

/** Another region may be switched off, and is not there yet when the control plane starts. */
async function withoutRegion(
  context: ReconcilerContext,
  work: Work,
  move: Move,
  begin: BeginStep,
  error: RegionNotServed,
): Promise<Verdict | null> {
  const { service } = work;
  const seen = seenBefore(work);
  if (isSuperseded(move, work.operation?.kind ?? null)) {
    await writeMove(context, work, { state: 'abort', problem: SUPERSEDED }, seen.reachable);
    return again(seen, null, SUPERSEDED);
  }
  switch (move.state) {
    case 'abort':
      return undo(context, work, begin, async () => {
        // Copies on a machine are on its disk, whether it is served or not.
        const isGone =
          context.region.engine.moves.place === 'machine' &&
          (await findKubernetesRegion(context.store.db, move.to)) === null;
        if (isGone) return GONE;
        throw error;
      });
    case 'copy': {
      // The service goes on without it.
      const own = await context.region.engine.lifecycle.converge(serviceSpec(service), begin);
      if (own.outcome !== 'settled') return own;
      await giveBack(context, work);
      return failedBy(work, error, own.seen);
    }
    case 'switch':
      if (!isSwitchOver(move, Date.now())) return again(seen, null, error.message, SWITCH_POLL_MS);
      await writeMove(context, work, { state: 'abort', problem: error.message }, false);
      return again(seen, null, error.message);
    case 'moved':
      return failedBy(work, error, seen);
    case 'kept':
      // A failure here takes nothing from the service.
      return mustBeRemoved(service, context.restoreWindowMs) ? failedBy(work, error, seen) : null;
  }
}

/** @throws RegionNotServed */
function movingOf(
  { regions }: ReconcilerContext,
  move: Move,
): Pick<Moving, 'move' | 'source' | 'target' | 'from' | 'to'> {
  const [source, target] = [regions.of(move.from), regions.of(move.to)];
  const [{ from }, { to }] = [source.engine.moves, target.engine.moves];
  if ('why' in from) throw new Error(from.why);
  if ('why' in to) throw new Error(to.why);
  return { move, source, target, from, to };
}

const LOST =
  'the copy runs and does not follow: it needs WAL that is removed, as more was written during ' +
  'the base backup than is kept, or it cannot reach the service; move it when less is written';

/** Has a copy made, and switches to it once it is close. The service goes first. */
async function copy(moving: Moving): Promise<Verdict> {
  const { context, work, move, begin, source, target, from, to } = moving;
  const { service, id } = work;
  const own = await source.engine.lifecycle.converge(serviceSpec(service), begin);
  if (own.outcome !== 'settled') return own;
  const { seen } = own;
  // An examination that did not end in a switch; or the control plane has ended since.
  if ((await giveBack(context, work)) === UNDER_WAY)
    return again(seen, null, 'its owner gets the role functions back', FOLLOW_POLL_MS);
  try {
    const spec = copySpec(service, move);
    const progress = await from.progress(id);
    // A role that an earlier move has left has another password.
    if (!move.prepared || !progress.mayLogIn) {
      await begin(MOVE_STEPS.prepare, seen);
      await from.admit(id, await to.prepare(spec, await from.login(id)));
      await writeMove(context, work, { prepared: true }, seen.reachable);
      return again(seen, MOVE_STEPS.prepare, `a copy in ${move.to} may log in`);
    }
    const made = await target.engine.lifecycle.converge(spec, begin);
    if (made.outcome !== 'settled') return { ...made, seen };
    await begin(MOVE_STEPS.follow, seen);
    const silent = silentFrom(move, progress, Date.now());
    if (silent !== move.silent) await writeMove(context, work, { silent }, seen.reachable);
    if (isLost({ silent }, Date.now())) return await abort(moving, LOST, seen);
    if (!isClose(progress)) {
      await begin(MOVE_STEPS.follow, seen, describeLag(progress));
      return again(seen, null, describeLag(progress), FOLLOW_POLL_MS);
    }
    return await beginSwitch(moving, seen);
  } catch (error) {
    if (error instanceof MoveRefused) return abort(moving, error.message, seen);
    return failedBy(work, error, seen);
  }
}

const turns = createTurns();

/** Examines the service once more, and records that it is about to be stopped. */
async function beginSwitch(moving: Moving, seen: Seen): Promise<Verdict> {
  const { context, work, move, target, from, to } = moving;
  const { service, id } = work;
  if ((await listParentsOfUnfinishedForks(context.store.db)).has(id))
    return again(seen, null, 'it is being forked', FOLLOW_POLL_MS);
  const postgres = target.engine.lifecycle.supports(service.addons, service.pg_version);
  const leave = turns.enter(move, Date.now());
  if (leave === null) return again(seen, null, 'it waits to be examined', FOLLOW_POLL_MS);
  const withhold = async (): Promise<void> => {
    await writeMove(context, work, { withheld: true }, seen.reachable);
    await from.withhold(id);
  };
  const { place } = target.engine.moves;
  const parts = { from: { ...from, withhold }, to, place };
  const examined = examineBeforeSwitch(parts, id).finally(leave);
  const { progress, found } = await examined;
  const lag = describeLag(progress);
  if (found === null) return again(seen, null, lag, FOLLOW_POLL_MS);
  const reasons = whyNotMoved(service, postgres, found.data, found.target);
  if (reasons.length > 0) return abort(moving, reasons.join('. Also: '), seen);
  const switched = new Date().toISOString();
  await writeMove(context, work, { state: 'switch', switched }, false);
  return again({ ...seen, reachable: false }, MOVE_STEPS.follow, lag);
}

const STOPPED: Seen = { reachable: false, present: true, provisioned: true };

/** Stops the service, and hands it over once the copy has all of it. */
export async function switchOver(moving: Moving): Promise<Verdict> {
  const { context, work, move, begin, from, to } = moving;
  await begin(MOVE_STEPS.switch, STOPPED);
  const isOver = isSwitchOver(move, Date.now());
  try {
    // A password that was set meanwhile goes along.
    const keep = async (verifier: string | null) => {
      const login = { verifier, certificate: null };
      const { reserved } = await to.prepare(copySpec(work.service, move), login);
      await writeMove(context, work, { kept: true }, false);
      return reserved;
    };
    const end = await from.stop(work.id, { isOver, isKept: move.kept, keep });
    const decided = decideSwitch({ ...(await to.position(work.id)), end, isOver });
    if (decided === 'wait') return again(STOPPED, null, 'the copy has not all yet', SWITCH_POLL_MS);
    if (decided === 'abort') return await abort(moving, 'the copy has not all of it', STOPPED);
  } catch (error) {
    const why = messageOf(error);
    if (isOver || error instanceof MoveRefused) return abort(moving, why, STOPPED);
    return again(STOPPED, null, why, SWITCH_POLL_MS);
  }
  try {
    // The claim goes with it: the reconciler of the other region goes on.
    await handOver(context, work, 'nothing is missing in the copy');
  } catch (error) {
    // Nobody serves it. If it has the other region all the same, this is not written.
    if (!isOver) throw error;
    return await abort(moving, messageOf(error), STOPPED);
  }
  return { did: MOVE_STEPS.switch, detail: null, seen: STOPPED, outcome: 'settled' };
}

async function abort({ context, work }: Moving, problem: string, seen: Seen) {
  await writeMove(context, work, { state: 'abort', problem }, seen.reachable);
  return again(seen, null, problem);
}

const RESTARTING = 'its server is restarted with the settings of a primary';

/** Promotes the copy, which is the service from now on. */
async function arrive(moving: Moving): Promise<Verdict | null> {
  const { context, work, move, begin, target, to } = moving;
  const { service, id } = work;
  // The service's data here does not wait for a cluster that may never answer.
  if (mustBeRemoved(service, context.restoreWindowMs)) return removeSource(moving);
  const spec = serviceSpec(service);
  const own = await target.engine.lifecycle.converge(spec, begin);
  if (own.outcome !== 'settled') return own;
  if (service.power === 'running' && !service.deleting) {
    await begin(MOVE_STEPS.end, own.seen);
    const { isFollowing, awaitsRestart } = await to.position(id);
    if (isFollowing) return again(own.seen, null, 'it is being promoted', SWITCH_POLL_MS);
    // Otherwise the service would end a moment after it has arrived, without a reason.
    if (awaitsRestart && !isRestartLate(move, Date.now()))
      return again(own.seen, null, RESTARTING, SWITCH_POLL_MS);
  }
  const outage = describeOutage(move, Date.now());
  await to.finish(spec);
  await retire(moving);
  const until = new Date(Date.now() + context.restoreWindowMs).toISOString();
  await writeMove(context, work, { state: 'kept', until }, own.seen.reachable);
  const detail = `${outage}; its former server is stopped, and kept until ${until}`;
  return { ...own, did: MOVE_STEPS.end, detail };
}

/** The service does not wait for its former region: this is tried again. */
async function retire({ from, move, work }: Moving): Promise<void> {
  const { id, service } = work;
  const current = { host: service.host, port: service.port };
  await from.retire(id, { former: move.source, current }).catch(() => undefined);
}

/**
 * Removes the former server once its time is over, or the service is removed. Neither waits for the
 * other: a service can be in an operation, or out of order, for as long as its owner likes.
 */
export async function removeSource(moving: Moving): Promise<Verdict | null> {
  const { context, work, move, source } = moving;
  const { service, id } = work;
  const isRemoved = mustBeRemoved(service, context.restoreWindowMs);
  if (!isRemoved && !isKeptTimeOver(move, Date.now())) {
    // The source's cluster may not have answered.
    await retire(moving);
    return null;
  }
  const seen = seenBefore(work);
  try {
    const removed = await removeSteps(source, id);
    // The removal is tried again in a minute; the round of the service goes first.
    if (removed.outcome !== 'settled') return isRemoved ? { ...removed, did: null, seen } : null;
  } catch (error) {
    return isRemoved ? failedBy(work, error, seen) : null;
  }
  await writeMove(context, work, null, seen.reachable);
  return null;
}

/** A removal has a few steps, and may have to wait between them. */
const MOST_STEPS = 10;

async function removeSteps({ engine }: Region, id: string): Promise<Verdict> {
  const next = () => engine.lifecycle.remove(id, null, async () => undefined);
  let verdict = await next();
  for (let steps = 1; steps < MOST_STEPS && isGoingOn(verdict); steps += 1) verdict = await next();
  return verdict;
}

const isGoingOn = (verdict: Verdict): boolean =>
  verdict.outcome === 'again' && verdict.did !== null && verdict.waitMs === 0;

// The last steps before a service is stopped, in the order that loses nothing.

/** At once: each holds a place of the reconciler, for minutes at most. */
const EXAMINED_AT_ONCE = 2;
/** A tenant can have its copy fall behind during each checkpoint. */
const EXAMINED_EVERY_MS = 60_000;

/** Says which moves may be examined: few at a time, and each once in a while. */
export function createTurns() {
  const begun = new Map<string, number>();
  const running = new Set<string>();
  return {
    /** @returns ends the examination; null: it has to wait */
    enter: ({ id }: Pick<Move, 'id'>, nowMs: number): (() => void) | null => {
      for (const [one, atMs] of begun) if (nowMs - atMs >= EXAMINED_EVERY_MS) begun.delete(one);
      if (begun.has(id) || running.size >= EXAMINED_AT_ONCE) return null;
      begun.set(id, nowMs);
      running.add(id);
      return () => void running.delete(id);
    },
  };
}

/** The state right before the switch. @param found null: the copy is not close */
type BeforeSwitch = Readonly<{
  progress: CopyProgress;
  found: Readonly<{ data: MovedData; target: MoveTarget }> | null;
}>;

/** `place`: of the target. */
type BothParts = Readonly<{ from: MoveSource; to: MoveTargetRegion; place: MovePlace }>;

/**
 * Examines a service right before it is stopped. A user may change everything until then, so what
 * takes time goes first.
 */
export async function examineBeforeSwitch(
  { from, to, place }: BothParts,
  id: string,
): Promise<BeforeSwitch> {
  await from.checkpoint(id);
  const progress = await from.progress(id);
  if (!isClose(progress)) return { progress, found: null };
  const target = { ...(await to.describe()), place, versions: await to.versions(id) };
  await from.withhold(id);
  return { progress, found: { target, data: await from.read(id) } };
}
