import {
  BackupsSchema,
  CreateServiceBody,
  ForkBody,
  LogsSchema,
  MessageBody,
  Ref,
  RenameBody,
  ResizeBody,
  SeriesBody,
  SeriesSchema,
  SERIES_NAMES,
  ServiceListSchema,
  ServiceSchema,
  SetEnvironmentBody,
  UpdatePasswordBody,
  ApiError,
} from '@howdah/contract';
import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { listDocs } from '../../store/services.ts';
import { parseMoment } from '../../moment.ts';
import { PRIMARY_NODE, type Caller } from '../../services/services.ts';
import type { ApiContext, App } from '../app.ts';
import { nameOperation, sendNothing, sendText } from '../reply.ts';

const ofProject = Type.Object({ project_id: Type.String() });
const ofService = Type.Object({ project_id: Type.String(), service_id: Type.String() });
const accepted = Type.Null({ description: 'accepted; the header Operation-Id names the operation' });
const oneOrMore = Type.Optional(
  Type.Union([Type.String({ maxLength: 256 }), Type.Array(Type.String({ maxLength: 256 }), { maxItems: 20 })]),
);

const LogsQuery = Type.Object({
  node: Type.Optional(Type.String()),
  since: Type.Optional(Type.String({ description: 'only entries at or after this date-time' })),
  until: Type.Optional(Type.String({ description: 'only entries before this date-time' })),
  cursor: Type.Optional(Type.String({ maxLength: 200 })),
  search: oneOrMore,
  severities: oneOrMore,
});
const LOG_PAGE = 500;

const callerOf = ({ key }: FastifyRequest): Caller => ({ publicKey: key.key, projectId: key.project_id });

export function serviceRoutes(api: App, { store, services }: ApiContext): void {
  api.get(
    '/projects/:project_id/services',
    {
      schema: {
        operationId: 'listServices',
        summary: 'List all services',
        tags: ['services'],
        params: ofProject,
        response: { 200: ServiceListSchema },
      },
    },
    async (request, reply) => sendText(reply, 200, await listDocs(store.pool, request.key.project_id)),
  );

  api.post(
    '/projects/:project_id/services',
    {
      schema: {
        operationId: 'createService',
        summary: 'Create a service',
        description: 'The answer holds the final endpoint and, here and nowhere else, the initial password.',
        tags: ['services'],
        params: ofProject,
        body: Ref(CreateServiceBody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) => {
      const { doc, operationId, initialPassword } = await services.create(callerOf(request), request.body);
      nameOperation(reply, operationId);
      // The document is an object: the password goes in as its last member.
      return sendText(reply, 202, `${doc.slice(0, -1)},"initial_password":${JSON.stringify(initialPassword)}}`);
    },
  );

  api.get(
    '/projects/:project_id/services/:service_id',
    {
      schema: {
        operationId: 'getService',
        summary: 'Get a service',
        tags: ['services'],
        params: ofService,
        response: { 200: Ref(ServiceSchema) },
      },
    },
    async (request, reply) => sendText(reply, 200, request.service.doc),
  );

  api.delete(
    '/projects/:project_id/services/:service_id',
    {
      config: { prodNeedsAdmin: true },
      schema: {
        operationId: 'deleteService',
        summary: 'Delete a service',
        tags: ['services'],
        params: ofService,
        response: { 202: accepted },
      },
    },
    async (request, reply) => {
      const { operationId } = await services.remove(callerOf(request), request.service.key);
      nameOperation(reply, operationId);
      return sendNothing(reply, 202);
    },
  );

  api.post(
    '/projects/:project_id/services/:service_id/forkService',
    {
      schema: {
        operationId: 'forkService',
        summary: 'Fork a service',
        description: 'The answer holds the final endpoint and, here and nowhere else, the initial password of the fork.',
        tags: ['backups'],
        params: ofService,
        body: Ref(ForkBody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) => {
      const { doc, operationId, initialPassword } = await services.fork(callerOf(request), request.service.key, request.body);
      nameOperation(reply, operationId);
      return sendText(reply, 202, `${doc.slice(0, -1)},"initial_password":${JSON.stringify(initialPassword)}}`);
    },
  );

  api.get(
    '/projects/:project_id/services/:service_id/backups',
    {
      schema: {
        operationId: 'getBackups',
        summary: 'Snapshots, and the window that can be reached',
        tags: ['backups'],
        params: ofService,
        response: { 200: Ref(BackupsSchema) },
      },
    },
    async (request) => services.backups(request.service.key),
  );

  api.post(
    '/projects/:project_id/services/:service_id/restore',
    {
      config: { deletedToo: true },
      schema: {
        operationId: 'restoreService',
        summary: 'Bring a deleted service back',
        description: 'With its id, endpoint, data and password, for a day after it was deleted, or as long as the installation keeps them.',
        tags: ['backups'],
        params: ofService,
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) => {
      const { doc, operationId } = await services.restore(callerOf(request), request.service.key);
      nameOperation(reply, operationId);
      return sendText(reply, 202, doc);
    },
  );

  for (const action of ['start', 'stop'] as const) {
    api.post(
      `/projects/:project_id/services/:service_id/${action}`,
      {
        schema: {
          operationId: `${action}Service`,
          summary: `${action === 'start' ? 'Start' : 'Stop'} a service`,
          tags: ['services'],
          params: ofService,
          response: { 202: Ref(ServiceSchema) },
        },
      },
      async (request, reply) => {
        const { doc, operationId } = await services[action](callerOf(request), request.service.key);
        nameOperation(reply, operationId);
        return sendText(reply, 202, doc);
      },
    );
  }

  api.post(
    '/projects/:project_id/services/:service_id/resize',
    {
      schema: {
        operationId: 'resizeService',
        summary: 'Resize a service',
        tags: ['services'],
        params: ofService,
        body: Ref(ResizeBody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) => {
      const { doc, operationId } = await services.resize(
        callerOf(request),
        request.service.key,
        request.body.cpu_millis,
        request.body.memory_gbs,
      );
      nameOperation(reply, operationId);
      return sendText(reply, 202, doc);
    },
  );

  api.post(
    '/projects/:project_id/services/:service_id/updatePassword',
    {
      schema: {
        operationId: 'updatePassword',
        summary: 'Update the password of tsdbadmin',
        description: 'Live before the answer; running sessions stay.',
        tags: ['services'],
        params: ofService,
        body: Ref(UpdatePasswordBody),
        response: { 204: Type.Null({ description: 'the new password is live' }) },
      },
    },
    async (request, reply) => {
      const { operationId } = await services.updatePassword(callerOf(request), request.service.key, request.body.password);
      nameOperation(reply, operationId);
      return sendNothing(reply, 204);
    },
  );

  api.post(
    '/projects/:project_id/services/:service_id/setEnvironment',
    {
      schema: {
        operationId: 'setEnvironment',
        summary: 'Set the environment tag',
        tags: ['services'],
        params: ofService,
        body: Ref(SetEnvironmentBody),
        response: { 200: Ref(MessageBody) },
      },
    },
    async (request, reply) => {
      const { operationId } = await services.setEnvironment(callerOf(request), request.service.key, request.body.environment);
      nameOperation(reply, operationId);
      return { message: `the environment is ${request.body.environment}` };
    },
  );

  api.post(
    '/projects/:project_id/services/:service_id/rename',
    {
      schema: {
        operationId: 'renameService',
        summary: 'Rename a service',
        tags: ['services'],
        params: ofService,
        body: Ref(RenameBody),
        response: { 200: Ref(ServiceSchema) },
      },
    },
    async (request, reply) => {
      const { doc, operationId } = await services.rename(callerOf(request), request.service.key, request.body.name);
      nameOperation(reply, operationId);
      return sendText(reply, 200, doc);
    },
  );

  api.get(
    '/projects/:project_id/services/:service_id/logs',
    {
      schema: {
        operationId: 'getServiceLogs',
        summary: 'Read the logs, newest first',
        tags: ['services'],
        params: ofService,
        querystring: LogsQuery,
        response: { 200: Ref(LogsSchema) },
      },
    },
    async (request) => {
      const { node, since, until, cursor, search, severities } = request.query;
      if (node !== undefined && node !== '' && node !== PRIMARY_NODE)
        throw new ApiError('INVALID_REQUEST', `node: found ${JSON.stringify(node)}; this service has the node ${PRIMARY_NODE}`);
      const { entries, cursor: next } = await services.logs(request.service.key, {
        sinceMs: momentOf('since', since),
        untilMs: momentOf('until', until),
        cursor: cursor === undefined || cursor === '' ? null : cursor,
        search: [search ?? []].flat(),
        severities: [severities ?? []].flat().map((severity) => severity.toUpperCase()),
        limit: LOG_PAGE,
      });
      const logs = entries.map(({ timestamp, severity, message }) => `${timestamp} ${severity}: ${message}`);
      return { logs, entries, ...(next === null ? {} : { last_cursor: next, lastCursor: next }) };
    },
  );

  api.get(
    '/projects/:project_id/services/:service_id/metrics/available-series',
    {
      schema: {
        operationId: 'listSeries',
        summary: 'List the series that are kept',
        tags: ['metrics'],
        params: ofService,
        response: { 200: Type.Array(Type.String()) },
      },
    },
    async () => [...SERIES_NAMES],
  );

  api.post(
    '/projects/:project_id/services/:service_id/metrics/series',
    {
      config: { readOnlyPost: true },
      schema: {
        operationId: 'querySeries',
        summary: 'Read a series',
        tags: ['metrics'],
        params: ofService,
        body: Ref(SeriesBody),
        response: { 200: Type.Array(Ref(SeriesSchema)) },
      },
    },
    async (request) => services.series(request.service.key, request.body),
  );
}

function momentOf(name: string, text: string | undefined): number | null {
  if (text === undefined || text === '') return null;
  const moment = parseMoment(text);
  if (moment === null) {
    throw new ApiError(
      'INVALID_REQUEST',
      `${name}: found ${JSON.stringify(text.slice(0, 64))}; expected a date-time like 2026-01-31T12:00:00Z`,
    );
  }
  return moment.ms;
}
