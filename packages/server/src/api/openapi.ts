/**
 * The OpenAPI document, made from the routes. Generated and committed; the server serves the
 * committed file.
 */
import {
  BASE_PATH,
  documented,
  DryRunSchema,
  ERROR_CODES,
  ERROR_STATUS,
  ErrorBody,
  permissionOf,
  PORTABLE_VISIBLE_PATTERN,
  Ref,
  type CallName,
  VISIBLE_PATTERN,
} from '@howdah/contract';
import swagger from '@fastify/swagger';
import { pino } from 'pino';
import { createApp } from './app.ts';
import type { ApiContext } from './context.ts';
import { hasBody, takesName } from './parameters.ts';

/**
 * @param dryRuns false: without the answers to dry runs, which no typed client sees: it makes the
 *   calls that it is asked to
 */
export async function createOpenApiDocument({ dryRuns = true } = {}): Promise<object> {
  const app = await createApp(withoutBackend, pino({ enabled: false }), async (instance) => {
    await instance.register(swagger, {
      openapi: {
        openapi: '3.1.0',
        info: {
          title: 'Howdah API',
          version: '1',
          description:
            'Manage PostgreSQL services: the REST API that Tiger Cloud’s clients speak, and what ' +
            'Howdah adds to it. Fields of a body that a call does not know have no effect: the ' +
            'header Warning of its answer names them, ' +
            'and so does the list `ignored` of an object. ' +
            'Those that differ from a known name in one or two letters are refused.',
        },
        servers: [{ url: BASE_PATH }],
        components: {
          securitySchemes: {
            bearer: { type: 'http', scheme: 'bearer', description: '<public_key>:<secret_key>' },
            basic: {
              type: 'http',
              scheme: 'basic',
              description: 'public key as user, secret key as password',
            },
          },
        },
        security: [{ bearer: [] }, { basic: [] }],
      },
      refResolver: {
        buildLocalReference: (json, _base, _fragment, index) =>
          typeof json['$id'] === 'string' ? json['$id'] : `def-${index}`,
      },
      stripBasePath: true,
      // Every call can be answered by an error; routes declare only their own answers.
      transform: ({ schema, url, route }) => {
        const changes = permissionOf(schema?.operationId)?.changes === true;
        const own = responsesOf(schema);
        const responses = { ...ERROR_ANSWERS, ...CONNECTION_ANSWERS, ...own };
        const method = String(route.method);
        const query = {
          ...ownQuery(schema),
          ...(changes ? DRY_RUN : {}),
          ...(changes && takesName(url) ? CONFIRM : {}),
          ...(hasBody(method) ? STRICT : {}),
        };
        return {
          url,
          schema: {
            ...schema,
            ...(Object.keys(query).length === 0
              ? {}
              : { querystring: { type: 'object', properties: query } }),
            ...(changes && method === 'POST' ? { headers: IDEMPOTENCY_KEY } : {}),
            response: changes && dryRuns ? withDryRun(responses) : responses,
          },
        };
      },
    });
  });
  await app.ready();
  const document = app.swagger();
  await app.close();
  addLinks(document.paths ?? {});
  return withPortablePatterns(document);
}

/** Test tools in other languages make values from the patterns. */
const withPortablePatterns = (document: object): object =>
  JSON.parse(JSON.stringify(document), (key, value: unknown) => {
    if (key === 'pattern' && value === VISIBLE_PATTERN) return PORTABLE_VISIBLE_PATTERN;
    if (typeof value !== 'object' || value === null || !('x-documented' in value)) return value;
    const { 'x-documented': facts, ...schema } = value;
    return Object.assign(schema, facts);
  });

const PARTS: readonly (string | symbol)[] = ['store', 'regions'] satisfies (keyof ApiContext)[];

/** Routes are declared, never called: whatever they would stand on is not there. */
const withoutBackend: ApiContext = new Proxy<ApiContext>(Object.create(null), {
  get: (_target, name) => {
    if (name === 'http')
      return {
        certificate: null,
        trustedProxies: [],
        names: [],
        connectionsPerAddress: 1,
        failedKeysPerMinute: 1,
        changesPerDay: 1,
      };
    return PARTS.includes(name) ? {} : undefined;
  },
});

/** The errors by status, each with the codes it can carry. */
const ERROR_ANSWERS = Object.fromEntries(
  [...new Set(Object.values(ERROR_STATUS))].map((status) => {
    const codes = ERROR_CODES.filter((code) => ERROR_STATUS[code] === status);
    return [status, { description: codes.join(', '), ...Ref(ErrorBody) }];
  }),
);

/** Refusals of the HTTP server itself, before there is a request. */
const CONNECTION_ANSWERS = {
  408: { description: 'INVALID_REQUEST: the request was not complete in time', ...Ref(ErrorBody) },
  431: { description: 'INVALID_REQUEST: the headers are larger than 8 KiB', ...Ref(ErrorBody) },
};

/**
 * Links from the answer of a call to another call. `@fastify/swagger` has no links.
 *
 * `parameter`: the parameter of the other call that `field` of the answer is.
 */
const LINKS: Partial<Record<CallName, { to: CallName; parameter: string; field: string }>> = {
  createService: { to: 'getService', parameter: 'service_id', field: 'service_id' },
  createServiceFromKit: { to: 'getService', parameter: 'service_id', field: 'service_id' },
  adoptService: { to: 'getService', parameter: 'service_id', field: 'service_id' },
  forkService: { to: 'getService', parameter: 'service_id', field: 'service_id' },
  createReplicaSet: { to: 'getReplicaSet', parameter: 'replica_set_id', field: 'id' },
  createVpc: { to: 'getVpc', parameter: 'vpc_id', field: 'id' },
  createAllowList: { to: 'getAllowList', parameter: 'allow_list_id', field: 'allow_list_id' },
  createExporter: { to: 'getExporter', parameter: 'exporter_id', field: 'exporter_id' },
  createPeering: { to: 'getPeering', parameter: 'peering_id', field: 'id' },
  createKey: { to: 'getKey', parameter: 'public_key', field: 'public_key' },
  createWebhook: { to: 'listDeliveries', parameter: 'webhook_id', field: 'id' },
  createRepository: { to: 'getRepository', parameter: 'repository_id', field: 'id' },
};

/** Adds the links; further parameters are those of the path that was called. */
function addLinks(paths: object): void {
  for (const [path, methods] of entriesOf(paths))
    for (const [, call] of entriesOf(methods)) {
      const { operationId, responses } = Object.fromEntries(entriesOf(call));
      const link = Object.entries(LINKS).find(([from]) => from === operationId)?.[1];
      const answer = entriesOf(responses).find(([status]) => ['201', '202'].includes(status))?.[1];
      if (link === undefined || typeof answer !== 'object' || answer === null) continue;
      const own = [...path.matchAll(/\{([a-z_]+)\}/g)].map(([, name = '']) => name);
      const inherited = Object.fromEntries(own.map((name) => [name, `$request.path.${name}`]));
      const parameters = { ...inherited, [link.parameter]: `$response.body#/${link.field}` };
      Object.assign(answer, { links: { [link.to]: { operationId: link.to, parameters } } });
    }
}

const entriesOf = (value: unknown): [string, unknown][] =>
  typeof value === 'object' && value !== null ? Object.entries(value) : [];

/** A query parameter of every call that changes something. */
const DRY_RUN = {
  dry_run: {
    type: 'string',
    enum: ['true', 'false'],
    description: 'true: nothing is changed; the answer describes the change',
  },
};

/** A query parameter of every call that changes a service. */
const CONFIRM = {
  confirm: {
    type: 'string',
    maxLength: 512,
    description:
      'the name of the service, or of the read replica set: changes of a PROD service that end ' +
      'sessions, or take data or protection away, need it unless clients of Tiger Cloud make ' +
      'them; if it is sent, it must be right',
  },
};

/** A query parameter of every call that can have a body. */
const STRICT = {
  strict: {
    type: 'string',
    enum: ['true', 'false'],
    description: 'true: fields of the body that the call does not know are refused, not ignored',
  },
};

const IDEMPOTENCY_KEY = {
  type: 'object',
  properties: {
    'Idempotency-Key': {
      type: 'string',
      minLength: 1,
      maxLength: 255,
      ...documented({ pattern: '^[!-~]+$' }),
      description:
        'repeat a call with the same key within 24 hours: ' +
        'the change is made once, with the same answer',
    },
  },
};

/** The query parameters that a route declares itself. */
function ownQuery(schema: object | undefined): object {
  const query: unknown =
    schema !== undefined && 'querystring' in schema ? schema.querystring : null;
  const properties: unknown =
    typeof query === 'object' && query !== null && 'properties' in query ? query.properties : null;
  return typeof properties === 'object' && properties !== null ? properties : {};
}

/** A dry run is answered with 200, where other answers may have that too. */
function withDryRun(responses: Record<string, unknown>): object {
  const success = responses[200];
  const dryRun = Ref(DryRunSchema);
  return {
    ...responses,
    200: {
      description: 'done; for a dry run, the description of the change',
      ...(success === undefined ? dryRun : { anyOf: [success, dryRun] }),
    },
  };
}

function responsesOf(schema: { response?: unknown }): Record<string, unknown> {
  return typeof schema.response === 'object' && schema.response !== null
    ? { ...schema.response }
    : {};
}
