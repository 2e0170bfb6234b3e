/** Reads from a running service: logs, metrics and read-only statements. */
import {
  AwakeSchema,
  documented,
  LogsSchema,
  QueryBody,
  QueryResultSchema,
  Ref,
  SeriesBody,
  SeriesDetailsSchema,
  SeriesSchema,
  EnableExtensionBody,
  InstalledExtensionsSchema,
  REGION_CODE_PATTERN,
  ServiceExtensionSchema,
  ServiceSchema,
} from '@howdah/contract';
import { Type } from 'typebox';
import { SERIES_DETAILS } from '../../domain/series.ts';
import {
  AVAILABLE_SERIES,
  readLogPage,
  readMetricSeries,
  runStatement,
} from '../../services/service-reads.ts';
import type { ApiContext, App } from '../context.ts';
import { momentParameter, nodeParameter } from '../parameters.ts';
import { clientOf, sendText } from '../reply.ts';
import { ofService, ofProject } from './schemas.ts';
import { readAwake } from '../../services/auto-suspend.ts';
import {
  disableExtension,
  enableExtension,
  listExtensions,
  listServiceExtensions,
} from '../../services/extensions.ts';
import { answer, callerOf } from '../change-requests.ts';

const oneOrMore = Type.Optional(
  Type.Union([
    Type.String({ maxLength: 256 }),
    Type.Array(Type.String({ maxLength: 256 }), { maxItems: 20 }),
  ]),
);

const moment = (description: string) =>
  Type.Optional(Type.String({ ...documented({ format: 'date-time' }), description }));

const LogsQuery = Type.Object({
  node: Type.Optional(
    Type.String({
      ...documented({ pattern: '^(0|[1-9][0-9]?)?$' }),
      description: 'the number of the server; default: the primary',
    }),
  ),
  since: moment('only entries at or after this date-time'),
  until: moment('only entries before this date-time'),
  cursor: Type.Optional(
    Type.String({ maxLength: 200, description: 'from last_cursor of the page before' }),
  ),
  search: oneOrMore,
  severities: oneOrMore,
});
const LOG_PAGE = 500;

export function readRoutes(api: App, context: ApiContext): void {
  logRoutes(api, context);
  metricRoutes(api, context);
  queryRoutes(api, context);
  sleepRoutes(api, context);
}

function sleepRoutes(api: App, context: ApiContext): void {
  api.get(
    '/projects/:project_id/services/:service_id/awake',
    {
      schema: {
        operationId: 'getAwake',
        summary: 'Read what keeps a service awake',
        description: 'A service that sleeps is not woken for that.',
        tags: ['services'],
        params: ofService,
        response: { 200: Ref(AwakeSchema) },
      },
    },
    async (request) => readAwake(context, request.service),
  );
}

function logRoutes(api: App, context: ApiContext): void {
  api.get(
    '/projects/:project_id/services/:service_id/logs',
    {
      config: { setsToo: true },
      schema: {
        operationId: 'getServiceLogs',
        summary: 'Read the server log, newest first',
        tags: ['services'],
        params: ofService,
        querystring: LogsQuery,
        response: { 200: Ref(LogsSchema) },
      },
    },
    async (request, reply) => {
      const { node, since, until, cursor, search, severities } = request.query;
      const { entries, cursor: next } = await readLogPage(
        context,
        request.service,
        nodeParameter(node, request.service),
        {
          sinceMs: momentParameter('since', since),
          untilMs: momentParameter('until', until),
          cursor: cursor === undefined || cursor === '' ? null : cursor,
          search: [search ?? []].flat(),
          severities: [severities ?? []].flat().map((severity) => severity.toUpperCase()),
          limit: LOG_PAGE,
        },
        clientOf(reply),
      );
      const logs = entries.map(
        ({ timestamp, severity, message }) => `${timestamp} ${severity}: ${message}`,
      );
      return { logs, entries, ...(next === null ? {} : { last_cursor: next, lastCursor: next }) };
    },
  );
}

function metricRoutes(api: App, context: ApiContext): void {
  api.get(
    '/projects/:project_id/services/:service_id/metrics/available-series',
    {
      config: { setsToo: true },
      schema: {
        operationId: 'listSeries',
        summary: 'List the available series',
        tags: ['metrics'],
        params: ofService,
        response: { 200: Type.Array(Type.String()) },
      },
    },
    async () => AVAILABLE_SERIES,
  );

  api.get(
    '/projects/:project_id/services/:service_id/metrics/details',
    {
      config: { setsToo: true },
      schema: {
        operationId: 'describeSeries',
        summary: 'Describe the available series: unit, labels, functions',
        tags: ['metrics'],
        params: ofService,
        response: { 200: Type.Array(Ref(SeriesDetailsSchema)) },
      },
    },
    async () => SERIES_DETAILS,
  );

  api.post(
    '/projects/:project_id/services/:service_id/metrics/series',
    {
      config: { setsToo: true },
      schema: {
        operationId: 'querySeries',
        summary: 'Read a series',
        tags: ['metrics'],
        params: ofService,
        body: Ref(SeriesBody),
        response: { 200: Type.Array(Ref(SeriesSchema)) },
      },
    },
    async (request) => readMetricSeries(context, request.service, request.body),
  );
}

function queryRoutes(api: App, context: ApiContext): void {
  api.post(
    '/projects/:project_id/services/:service_id/query',
    {
      config: { setsToo: true },
      schema: {
        operationId: 'queryService',
        summary: 'Run one read-only statement',
        description:
          'It runs as a role that may read everything and write nothing, ' +
          'in a read-only transaction; for a read replica set on one of its nodes.',
        tags: ['services'],
        params: ofService,
        body: Ref(QueryBody),
        response: { 200: Ref(QueryResultSchema) },
      },
    },
    async (request, reply) =>
      sendText(
        reply,
        200,
        JSON.stringify(await runStatement(context, request.service, request.body)),
      ),
  );
}

// Extensions: what is installed, and what services have.

const PATH = '/projects/:project_id/services/:service_id/extensions';

export function extensionRoutes(api: App, context: ApiContext): void {
  api.get(
    '/projects/:project_id/extensions',
    {
      schema: {
        operationId: 'listExtensions',
        summary: 'List the extensions that are installed',
        description:
          'Of each PostgreSQL of a region; the first is the one that new services get. ' +
          'An extension that is not allowed has the reason.',
        tags: ['services'],
        params: ofProject,
        querystring: Type.Object({
          region_code: Type.Optional(
            Type.String({
              maxLength: 64,
              ...documented({ pattern: REGION_CODE_PATTERN }),
              description: 'default: the first region',
            }),
          ),
        }),
        response: { 200: Type.Array(Ref(InstalledExtensionsSchema)) },
      },
    },
    async (request) => listExtensions(context, request.query.region_code),
  );

  api.get(
    PATH,
    {
      schema: {
        operationId: 'listServiceExtensions',
        summary: 'List the extensions that a service has or can have',
        tags: ['services'],
        params: ofService,
        response: { 200: Type.Array(Ref(ServiceExtensionSchema)) },
      },
    },
    async (request) => listServiceExtensions(context, request.service),
  );

  api.post(
    PATH,
    {
      schema: {
        operationId: 'enableExtension',
        summary: 'Enable an extension',
        description:
          'It is created in the database. Where PostgreSQL must load its library at the start, ' +
          'the service restarts first.',
        tags: ['services'],
        params: ofService,
        body: Ref(EnableExtensionBody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await enableExtension(context, callerOf(request), request.service, request.body.name),
      ),
  );

  api.delete(
    `${PATH}/:extension_name`,
    {
      schema: {
        operationId: 'disableExtension',
        summary: 'Disable an extension',
        description:
          'It is dropped, which fails while anything depends on it. ' +
          'If its library was loaded at the start, the service restarts.',
        tags: ['services'],
        params: Type.Object({ ...ofService.properties, extension_name: Type.String() }),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await disableExtension(
          context,
          callerOf(request),
          request.service,
          request.params.extension_name,
        ),
      ),
  );
}
