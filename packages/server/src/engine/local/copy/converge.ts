/** One round of a copy: it is observed, and one step is performed. */
import type { BeginStep, Seen, Verdict } from '../../engine.ts';
import { COPY_APPLICATION } from '../../moves.ts';
import { removeTree } from '../host/clone.ts';
import { currentBoot, writeMarker } from '../host/marker.ts';
import { pruneLogs } from '../postgres/logs.ts';
import { missingFor } from '../postgres/installations.ts';
import type { Topology } from '../topology/context.ts';
import { finishRound } from '../topology/driver.ts';
import { stopInstance } from '../topology/start-stop.ts';
import {
  beginBackup,
  endBackup,
  findBaseBackup,
  missingBaseBackup,
  unfinishedOf,
} from './base-backup.ts';
import { completeData } from './complete.ts';
import { COPY_STEPS, decideCopy, type CopyStep } from './decide.ts';
import { observeCopy, type FoundCopy } from './observe.ts';
import { sourceConnection, type CopySpec } from './place.ts';
import { becomeService, renameCopy } from './become-service.ts';
import { startCopy } from './start.ts';

const POLL_MS = 500;

/** A step that ends a round in which it begins. */
type Active = Exclude<CopyStep, { kind: 'settled' | 'refuse' | 'wait' | 'begin' }>;

const NAME: Record<Active['kind'], string> = {
  giveUp: COPY_STEPS.copy,
  complete: COPY_STEPS.copy,
  start: COPY_STEPS.start,
  restart: COPY_STEPS.start,
  promote: COPY_STEPS.promote,
  rename: COPY_STEPS.promote,
};

/**
 * Makes one step towards a copy that follows its service, or, by the spec of the service, towards
 * the service that it becomes.
 */
export async function convergeCopy(
  topology: Topology,
  spec: CopySpec,
  begin: BeginStep,
): Promise<Verdict> {
  const { found, seen } = await observeCopy(topology, spec);
  const step = decideCopy(seen);
  const before: Seen = {
    reachable: false,
    present: seen.directory === 'ours',
    // Users have written to the service that it is the data of.
    provisioned: seen.isService,
  };
  switch (step.kind) {
    case 'begin':
    case 'wait':
      return copyData(topology, spec, found, { step, before, begin });
    case 'settled':
    case 'refuse':
      return finishRound(
        { ...round(found, before), decided: { ending: step }, apply: async () => '' },
        begin,
      );
    default:
      return finishRound(
        {
          ...round(found, before),
          decided: { name: NAME[step.kind] },
          apply: () => apply(topology, spec, found, step),
        },
        begin,
      );
  }
}

const round = ({ paths }: FoundCopy, before: Seen) => ({
  before,
  tidy: () => pruneLogs(paths.logs),
  isReachableAfter: () => false,
});

type Copying = Readonly<{
  step: Extract<CopyStep, { kind: 'begin' | 'wait' }>;
  before: Seen;
  begin: BeginStep;
}>;

/** The base backup runs beside the rounds; the step ends with it. */
async function copyData(
  topology: Topology,
  spec: CopySpec,
  found: FoundCopy,
  { step, before, begin }: Copying,
): Promise<Verdict> {
  const progress = step.kind === 'begin' ? 'it begins with a checkpoint' : describe(step);
  await begin(COPY_STEPS.copy, before);
  const again = { did: null, detail: progress, seen: before, outcome: 'again' } as const;
  try {
    if (step.kind === 'begin') await beginData(topology, spec, found);
    else await begin(COPY_STEPS.copy, before, progress);
    return { ...again, waitMs: POLL_MS };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    const did = COPY_STEPS.copy;
    const failed = { did, detail: reason, seen: before, outcome: 'failed' } as const;
    return { ...failed, reason: `${did}: ${reason}` };
  }
}

function describe({ doneBytes, totalBytes }: { doneBytes: number; totalBytes: number }): string {
  const mb = (bytes: number): string => `${(bytes / 1e6).toFixed(0)} MB`;
  if (totalBytes === 0) return 'it begins with a checkpoint';
  return `${mb(doneBytes)} of ${mb(totalBytes)}`;
}

async function beginData(
  { machine, renewEgress }: Topology,
  spec: CopySpec,
  { paths, owner, installation, marker, followed }: FoundCopy,
): Promise<void> {
  const { usable } = machine.installations;
  if (installation === null || marker === null || followed === null)
    throw new Error(missingFor(usable, spec.addons, spec.major));
  const program = findBaseBackup(usable, installation.major);
  if (program === null) throw new Error(missingBaseBackup(installation.major));
  await renewEgress();
  // From before the machine went down: see backupOf.
  await writeMarker(paths, { ...marker, madeIn: await currentBoot() });
  const source = sourceConnection(paths, followed, `${COPY_APPLICATION}_base`);
  await beginBackup(machine, spec, paths, owner, { program, source });
}

/** @returns a line for the user */
async function apply(
  topology: Topology,
  spec: CopySpec,
  found: FoundCopy,
  step: Active,
): Promise<string> {
  const { machine, executor } = topology;
  const { paths, owner, installation, server } = found;
  switch (step.kind) {
    case 'giveUp':
      await endBackup(paths);
      await removeTree(unfinishedOf(paths), machine.cloneMethod);
      throw new Error(step.why);
    case 'complete':
      if (installation === null)
        throw new Error(missingFor(machine.installations.usable, spec.addons, spec.major));
      await completeData(paths, owner, installation.major);
      return `${(step.bytes / 1e6).toFixed(0)} MB`;
    case 'start':
      return startCopy(topology, spec, found);
    case 'restart':
      if (server !== null) await stopInstance(executor, spec.id, paths, server, 'fast');
      return startCopy(topology, spec, found);
    case 'promote':
      return becomeService(topology, spec, found);
    case 'rename':
      return renameCopy(topology, spec);
  }
}
