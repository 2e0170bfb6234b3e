/** Routes of the simulated region: its script and its clock. */
import {
  AdvanceClockBody,
  Ref,
  SIMULATED_REGION,
  SimulationSchema,
  SimulationScriptSchema,
} from '@howdah/contract';
import {
  advanceSimulationClock,
  readSimulation,
  setSimulationScript,
} from '../../services/simulation.ts';
import type { ApiContext, App } from '../context.ts';
import { answer, callerOf } from '../changes.ts';

const PATH = `/regions/${SIMULATED_REGION}`;

export function simulationRoutes(api: App, context: ApiContext): void {
  const tags = ['simulation'];
  api.get(
    PATH,
    {
      schema: {
        operationId: 'getSimulation',
        summary: 'Get the script and the time of the simulated region',
        description:
          'Needs an admin key of the operator project: the script names services of all projects.',
        tags,
        response: { 200: Ref(SimulationSchema) },
      },
    },
    async () => readSimulation(context),
  );

  api.put(
    `${PATH}/script`,
    {
      schema: {
        operationId: 'setSimulationScript',
        summary: 'Set the script of the simulated region',
        description:
          'Needs an admin key of the operator project. It replaces the script before; an empty one delays nothing, and nothing fails.',
        tags,
        body: Ref(SimulationScriptSchema),
        response: { 200: Ref(SimulationSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await setSimulationScript(context, callerOf(request), request.body)),
  );

  api.post(
    `${PATH}/clock`,
    {
      schema: {
        operationId: 'advanceSimulationClock',
        summary: 'Advance the clock of the simulated region',
        description:
          'Needs an admin key of the operator project. Delays that end within this time are over, and events of the script have happened.',
        tags,
        body: Ref(AdvanceClockBody),
        response: { 200: Ref(SimulationSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await advanceSimulationClock(context, callerOf(request), request.body.seconds)),
  );
}
