/**
 * Routes of the installation that need no key: health, metrics, the CA certificate, the API
 * reference.
 */
import { readFile } from 'node:fs/promises';
import Fastify, { type FastifyInstance } from 'fastify';
import { ApiError, BASE_PATH } from '@howdah/contract';
import { OPENAPI_FILE } from '../../paths.ts';
import type { ApiContext, App } from '../context.ts';
import type { Metrics } from '../metrics.ts';
import { refuseUnknownParameters } from '../parameters.ts';

export function installationRoutes(
  app: App,
  { caPem, notReady }: ApiContext,
  metrics: Metrics,
): void {
  const open = { config: { public: true }, schema: { hide: true } } as const;

  app.get('/healthz', open, async () => ({ status: 'ok' }));

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
