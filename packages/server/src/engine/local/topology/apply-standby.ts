/** Performs the steps of a server of a cluster or a set: its replication settings are a file. */
import { applyStep, type ActiveStep } from './apply.ts';
import type { Topology } from './context.ts';
import type { Found } from './executor.ts';
import { startStandby, writeReplication } from './standbys.ts';
import type { PlacedSpec } from './placed-spec.ts';

/** Writes the replication settings of a server before a step that has it read its files. */
export async function writeReplicationFor(
  { executor }: Topology,
  step: ActiveStep,
  found: Found,
  conf: string,
): Promise<void> {
  if (step.kind === 'writeFiles' || step.kind === 'reload')
    await writeReplication(executor, found, conf);
}

/** Performs a step of a server that follows. If it does not start, it is seeded again. */
export async function applyToStandby(
  { executor, standbys }: Topology,
  spec: PlacedSpec,
  step: ActiveStep,
  found: Found,
): Promise<string> {
  const apply = () => applyStep(executor, spec, step, found);
  return step.kind === 'start' ? startStandby(standbys, found.key, apply) : apply();
}
