/** The script and the clock of the simulated region. */
import {
  ApiError,
  SIMULATED_REGION,
  type Simulation,
  type SimulationScript,
} from '@howdah/contract';
import { BadScript, type Simulation as SimulationFacet } from '../engine/engine.ts';
import type { Regions } from '../engine/regions.ts';
import { answerWith, makeChange, type Caller, type Outcome } from './change.ts';
import type { ControlContext } from './control-context.ts';

/** @throws ApiError NOT_FOUND without a simulated region */
export function readSimulation({ regions }: ControlContext): Promise<Simulation> {
  return describe(simulationOf(regions));
}

/** Sets the script in place of the one before. */
export function setSimulationScript(
  { store, regions }: ControlContext,
  caller: Caller,
  script: SimulationScript,
): Promise<Outcome> {
  return makeChange(store, caller, async () => {
    const simulation = simulationOf(regions);
    if (!caller.dryRun) await set(simulation, script);
    return answerWith(await describe(simulation));
  });
}

/** Lets time pass at once. */
export function advanceSimulationClock(
  { store, regions }: ControlContext,
  caller: Caller,
  seconds: number,
): Promise<Outcome> {
  return makeChange(store, caller, async () => {
    const simulation = simulationOf(regions);
    if (!caller.dryRun) await simulation.advance(seconds * 1000);
    return answerWith(await describe(simulation));
  });
}

function simulationOf({ all }: Regions): SimulationFacet {
  const simulation = all.find(({ code }) => code === SIMULATED_REGION)?.engine.simulation ?? null;
  if (simulation === null)
    throw new ApiError(
      'NOT_FOUND',
      'no region is simulated here; howdah up --simulated-region yes adds one',
    );
  return simulation;
}

async function set(simulation: SimulationFacet, script: SimulationScript): Promise<void> {
  try {
    await simulation.setScript(script);
  } catch (error) {
    if (error instanceof BadScript) throw new ApiError('INVALID_REQUEST', error.message);
    throw error;
  }
}

async function describe(simulation: SimulationFacet): Promise<Simulation> {
  return {
    now: new Date(await simulation.nowMs()).toISOString(),
    script: await simulation.script(),
  };
}
