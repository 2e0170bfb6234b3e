/** The OpenAPI document, made from the routes. Generated and committed; the server serves the committed file. */
import { BASE_PATH, ERROR_CODES, ERROR_STATUS, ErrorBody, Ref } from '@howdah/contract';
import swagger from '@fastify/swagger';
import { pino } from 'pino';
import { createApp, type ApiContext } from './app.ts';

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
      // Every call can be answered by an error; routes declare only their own answers.
      transform: ({ schema, url }) => ({ url, schema: { ...schema, response: { ...ERROR_ANSWERS, ...responsesOf(schema) } } }),
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

/** The errors by status, each with the codes it can carry. */
const ERROR_ANSWERS = Object.fromEntries(
  [...new Set(Object.values(ERROR_STATUS))].map((status) => {
    const codes = ERROR_CODES.filter((code) => ERROR_STATUS[code] === status);
    return [status, { description: codes.join(', '), ...Ref(ErrorBody) }];
  }),
);

function responsesOf(schema: { response?: unknown }): object {
  return typeof schema.response === 'object' && schema.response !== null ? schema.response : {};
}
