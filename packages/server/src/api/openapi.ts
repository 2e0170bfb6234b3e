/** The OpenAPI document, made from the routes. Generated and committed; the server serves the committed file. */
import swagger from '@fastify/swagger';
import { pino } from 'pino';
import { createApp, BASE_PATH, type ApiContext } from './app.ts';

export async function createOpenApiDocument(): Promise<object> {
  const app = await createApp(withoutBackend, pino({ enabled: false }), async (instance) => {
    await instance.register(swagger, {
      openapi: {
        openapi: '3.1.0',
        info: {
          title: 'Howdah API',
          version: '1',
          description: 'Manage PostgreSQL services: the REST API that Tiger Cloud’s clients speak, and what Howdah adds to it.',
        },
        servers: [{ url: BASE_PATH }],
        components: {
          securitySchemes: {
            bearer: { type: 'http', scheme: 'bearer', description: '<public_key>:<secret_key>' },
            basic: { type: 'http', scheme: 'basic', description: 'public key as user, secret key as password' },
          },
        },
        security: [{ bearer: [] }, { basic: [] }],
      },
      refResolver: {
        buildLocalReference: (json, _base, _fragment, index) => (typeof json['$id'] === 'string' ? json['$id'] : `def-${index}`),
      },
      stripBasePath: true,
    });
  });
  await app.ready();
  const document = app.swagger();
  await app.close();
  return document;
}

/** Routes are declared, never called: whatever they would stand on is not there. */
const withoutBackend: ApiContext = new Proxy<ApiContext>(Object.create(null), {
  get: (_target, name) => (name === 'store' || name === 'region' || name === 'services' ? {} : undefined),
});
