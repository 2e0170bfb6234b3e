/**
 * Routes of the installation that need no key: health, metrics, the CA certificate, the API
 * reference.
 */
import { readFile } from 'node:fs/promises';
import Fastify, { type FastifyInstance } from 'fastify';
import {
  ApiError,
  BASE_PATH,
  AdvanceClockBody,
  Ref,
  SIMULATED_REGION,
  SimulationSchema,
  SimulationScriptSchema,
} from '@howdah/contract';
import { VERSION } from '@howdah/contract/version';
import { OPENAPI_FILE } from '../../paths.ts';
import type { ApiContext, App } from '../context.ts';
import type { Metrics } from '../metrics.ts';
import { refuseUnknownParameters } from '../parameters.ts';
import { ofService } from './schemas.ts';
import {
  advanceSimulationClock,
  readSimulation,
  setSimulationScript,
} from '../../services/simulation.ts';
import { answer, callerOf } from '../change-requests.ts';

export function installationRoutes(
  app: App,
  { caPem, notReady }: ApiContext,
  metrics: Metrics,
): void {
  const open = { config: { public: true }, schema: { hide: true } } as const;

  app.get('/healthz', open, async () => ({ status: 'ok', version: VERSION }));

  app.get('/readyz', open, async () => {
    const reason = await notReady();
    if (reason !== null) throw new ApiError('UNAVAILABLE', reason);
    return { status: 'ready' };
  });

  app.get('/metrics', open, async (_request, reply) =>
    reply.type(metrics.contentType).send(await metrics.text()),
  );

  const described = { ...open, preValidation: refuseUnknownParameters };
  app.get(`${BASE_PATH}/ca.pem`, described, async (_request, reply) =>
    reply.type('application/x-pem-file').send(caPem),
  );

  app.get(`${BASE_PATH}/openapi.json`, described, async (_request, reply) =>
    reply
      .type('application/json')
      .serializer(String)
      .send(await readFile(OPENAPI_FILE, 'utf8')),
  );

  // The script of the page has 4 MB, so it is loaded on the first request, not at the start.
  let reference: Promise<FastifyInstance> | undefined;
  app.get(`${REFERENCE}/*`, open, async (request, reply) => {
    reference ??= referencePage();
    const page = await (await reference).inject({ url: request.url });
    return reply.code(page.statusCode).headers(page.headers).serializer(String).send(page.body);
  });
  app.get(REFERENCE, open, async (_request, reply) => reply.redirect(`${REFERENCE}/`));
}

const REFERENCE = `${BASE_PATH}/reference`;

async function referencePage(): Promise<FastifyInstance> {
  const page = Fastify();
  await page.register(import('@scalar/fastify-api-reference'), {
    routePrefix: REFERENCE,
    configuration: {
      url: `${BASE_PATH}/openapi.json`,
      pageTitle: 'Howdah API',
      // The page makes no requests to other hosts.
      withDefaultFonts: false,
      telemetry: false,
      showDeveloperTools: 'never',
      agent: { disabled: true },
      mcp: { disabled: true },
      hideClientButton: true,
    },
  });
  return page;
}

// Calls of Tiger Cloud that have nothing behind them here. Their answer is the reason, so that
// nobody looks for a mistake in a path. They are not part of the OpenAPI document.

const REFUSED = [
  {
    method: ['POST'],
    path: 'enableDataTiering',
    why:
      'there is no object storage behind this installation that old data could be moved to; ' +
      'POST …/resize with storage_gb gives the service more disk',
  },
  {
    method: ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'],
    path: 'tags',
    why:
      'services have no tags; POST …/rename sets the name, and POST …/setEnvironment the ' +
      'environment tag',
  },
] as const;

export function refusedRoutes(api: App): void {
  for (const { method, path, why } of REFUSED)
    api.route({
      method: [...method],
      url: `/projects/:project_id/services/:service_id/${path}`,
      // These calls change nothing: a key that may read the service gets the reason.
      schema: { hide: true, operationId: 'getService', params: ofService },
      handler: () => {
        throw new ApiError('UNAVAILABLE_HERE', `${path}: ${why}`);
      },
    });
}

// Routes of the simulated region: its script and its clock.

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
          'Needs an admin key of the operator project. It replaces the script before; ' +
          'an empty one delays nothing, and nothing fails.',
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
          'Needs an admin key of the operator project. ' +
          'Delays that end within this time are over, ' +
          'and events of the script have happened.',
        tags,
        body: Ref(AdvanceClockBody),
        response: { 200: Ref(SimulationSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await advanceSimulationClock(context, callerOf(request), request.body.seconds)),
  );
}
