/**
 * Performs the operations that try upgrades, one at a time in a region. A tenant can make each
 * last, so no verification waits for one.
 */
import { serviceSpec } from '../domain/service/spec.ts';
import type { Region } from '../engine/regions.ts';
import { listBeside } from '../store/beside.ts';
import { endOperation } from '../store/operations.ts';
import { createBesideRound, performBeside, type BesideTools } from './beside.ts';

type TrialsOptions = BesideTools & Readonly<{ region: Region }>;

export function createTrials(options: TrialsOptions) {
  return createBesideRound(options, 'upgradeTrials', (closing) => round(options, closing));
}

async function round(options: TrialsOptions, closing: AbortSignal): Promise<void> {
  const { store, region } = options;
  const [operation] = await listBeside(store.db, region.code, 'tryUpgrade');
  if (operation === undefined) return;
  const { request } = operation;
  const result = await performBeside(
    options,
    operation,
    closing,
    async (service, runStep, signal) => {
      if (request === null || !('major' in request)) return 'it names no version';
      const { lifecycle } = region.engine;
      await lifecycle.tryUpgrade(serviceSpec(service), request.major, runStep, signal);
      return null;
    },
  );
  if (result === null) return;
  const status = result.problem === null ? 'succeeded' : 'failed';
  await endOperation(store.db, operation.id, status, result.problem);
}
