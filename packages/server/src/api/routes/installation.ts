/** What belongs to the installation rather than to a project, and needs no key: health, metrics, the CA, the contract itself. */
import { readFile } from 'node:fs/promises';
import { ApiError } from '@howdah/contract';
import { OPENAPI_FILE } from '../../paths.ts';
import { BASE_PATH, type ApiContext, type App } from '../app.ts';
import type { Metrics } from '../metrics.ts';

export function installationRoutes(app: App, { caPem, notReady }: ApiContext, metrics: Metrics): void {
  const open = { config: { public: true }, schema: { hide: true } } as const;

  app.get('/healthz', open, async () => ({ status: 'ok' }));

  app.get('/readyz', open, async () => {
    const reason = await notReady();
    if (reason !== null) throw new ApiError('UNAVAILABLE', reason);
    return { status: 'ready' };
  });

  app.get('/metrics', open, async (_request, reply) => reply.type(metrics.contentType).send(await metrics.text()));

  app.get(`${BASE_PATH}/ca.pem`, open, async (_request, reply) => reply.type('application/x-pem-file').send(caPem));

  app.get(`${BASE_PATH}/openapi.json`, open, async (_request, reply) =>
    reply
      .type('application/json')
      .serializer(String)
      .send(await readFile(OPENAPI_FILE, 'utf8')),
  );

  void app.register(import('@scalar/fastify-api-reference'), {
    routePrefix: `${BASE_PATH}/reference`,
    configuration: {
      url: `${BASE_PATH}/openapi.json`,
      title: 'Howdah API',
      // No request to anywhere else.
      withDefaultFonts: false,
      telemetry: false,
      showDeveloperTools: 'never',
      agent: { disabled: true },
      mcp: { disabled: true },
      hideClientButton: true,
    },
  });
}
