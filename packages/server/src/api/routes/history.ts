import { Readable } from 'node:stream';
import {
  ApiError,
  AUDIT_OUTCOMES,
  AuditEntrySchema,
  documented,
  Ref,
  StringEnum,
  EventSchema,
  OPERATION_KINDS,
  OPERATION_STATUSES,
  OperationSchema,
} from '@howdah/contract';
import { Type } from 'typebox';
import { parseMoment } from '../../lib/moment.ts';
import { auditDocument, listAuditEntries, type AuditFilter } from '../../store/audit-log.ts';
import type { Db } from '../../store/tables.ts';
import type { ApiContext, App } from '../context.ts';
import { pageOf, paging, sendList, CURSORS } from '../paging.ts';
import { sendStream } from '../reply.ts';
import { ofProject } from './schemas.ts';
import { operationDocument } from '../../domain/operation.ts';
import { cancelOperation, describeOperation } from '../../services/operations.ts';
import { listOperations } from '../../store/operations.ts';
import { answer, callerOf } from '../change-requests.ts';

const word = (description: string) =>
  Type.Optional(Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$', description }));
const moment = (description: string) =>
  Type.Optional(Type.String({ ...documented({ format: 'date-time' }), description }));

const filters = {
  service_id: word('id of a service'),
  operation_id: word('id of an operation'),
  public_key: word('public half of a key'),
  call: word('operationId of the call, like createService'),
  outcome: Type.Optional(StringEnum(AUDIT_OUTCOMES)),
  since: moment('only entries at or after this date-time'),
  until: moment('only entries before this date-time'),
};
type FilterQuery = {
  service_id?: string;
  operation_id?: string;
  public_key?: string;
  call?: string;
  outcome?: (typeof AUDIT_OUTCOMES)[number];
  since?: string;
  until?: string;
};
const EXPORT_ROWS = 1000;

export function auditLogRoutes(api: App, { store }: ApiContext): void {
  api.get(
    '/projects/:project_id/audit',
    {
      schema: {
        operationId: 'listAudit',
        summary: 'The audit log, newest first',
        description:
          'Every call that may change something, allowed or refused. ' +
          'The contents of requests are not kept.',
        tags: ['audit'],
        params: ofProject,
        querystring: Type.Object({ ...paging('number'), ...filters }),
        response: { 200: Type.Array(Ref(AuditEntrySchema)) },
      },
    },
    async (request, reply) => {
      const filter = filterOf(request.query);
      return sendList(request, reply, 'number', async (after, limit) =>
        pageOf(
          await listAuditEntries(
            store.db,
            request.key.project_id,
            filter,
            'desc',
            after,
            limit + 1,
          ),
          limit,
          auditDocument,
          (row) => row.id,
        ),
      );
    },
  );

  api.get(
    '/projects/:project_id/audit/export',
    {
      exposeHeadRoute: false,
      schema: {
        operationId: 'exportAudit',
        summary: 'Export the audit log as JSON lines, oldest first',
        tags: ['audit'],
        params: ofProject,
        querystring: Type.Object(filters),
        response: {
          200: {
            description: 'one AuditEntry per line',
            content: { 'application/jsonl': { schema: Type.String() } },
          },
        },
      },
    },
    async (request, reply) => {
      const lines = exportLines(store.db, request.key.project_id, filterOf(request.query));
      return sendStream(reply, 'application/jsonl', Readable.from(lines, { objectMode: false }));
    },
  );
}

async function* exportLines(
  db: Db,
  projectId: string,
  filter: AuditFilter,
): AsyncGenerator<string> {
  let after: string | null = null;
  for (;;) {
    const rows = await listAuditEntries(db, projectId, filter, 'asc', after, EXPORT_ROWS);
    const last = rows.at(-1);
    if (last === undefined) return;
    after = last.id;
    yield rows.map((row) => `${JSON.stringify(auditDocument(row))}\n`).join('');
  }
}

function filterOf({
  service_id,
  operation_id,
  public_key,
  call,
  outcome,
  since,
  until,
}: FilterQuery): AuditFilter {
  return {
    ...(service_id === undefined ? {} : { serviceId: service_id }),
    ...(operation_id === undefined ? {} : { operationId: operation_id }),
    ...(public_key === undefined ? {} : { publicKey: public_key }),
    ...(call === undefined ? {} : { call }),
    ...(outcome === undefined ? {} : { outcome }),
    ...(since === undefined ? {} : { since: momentOf('since', since) }),
    ...(until === undefined ? {} : { until: momentOf('until', until) }),
  };
}

function momentOf(name: string, text: string): string {
  const moment = parseMoment(text);
  if (moment !== null) return moment.text;
  throw new ApiError(
    'INVALID_REQUEST',
    `${name}: found ${JSON.stringify(text.slice(0, 64))}; ` +
      'expected a date-time like 2026-01-31T12:00:00Z',
  );
}

const EventsQuery = Type.Object({
  last_event_id: Type.Optional(
    Type.String({
      maxLength: 64,
      ...documented({ pattern: '^[0-9]{0,15}$' }),
      description: 'instead of the header Last-Event-ID',
      'x-go-name': 'LastEventIdInQuery',
    }),
  ),
  follow: Type.Optional(
    Type.Unsafe<'true' | 'false'>({
      type: 'string',
      enum: ['true', 'false'],
      description: 'false: end at the last event; default true',
    }),
  ),
});

export function eventRoutes(api: App, { events }: ApiContext): void {
  api.get(
    '/projects/:project_id/events',
    {
      // A HEAD request would wait for the end of the stream, which never comes.
      exposeHeadRoute: false,
      schema: {
        operationId: 'streamEvents',
        summary: 'Follow events as server-sent events',
        description:
          'The stream begins with the next event, or after the event in the header ' +
          'Last-Event-ID; 0 is before the first. Events are kept for 7 days: ' +
          'a client that reconnects later gets an event of the type gap. ' +
          'A comment every 15 seconds keeps the stream alive. ' +
          'It ends when the key is revoked.',
        tags: ['events'],
        params: ofProject,
        querystring: EventsQuery,
        headers: Type.Object({ 'last-event-id': Type.Optional(Type.String()) }),
        response: {
          200: {
            description: 'the data of each event is an Event',
            content: { 'text/event-stream': { schema: Ref(EventSchema) } },
          },
        },
      },
    },
    async (request, reply) => {
      const { key, query, headers } = request;
      const after = headers['last-event-id'] ?? query.last_event_id ?? '';
      if (after !== '' && !CURSORS.number.test(after))
        throw new ApiError(
          'INVALID_REQUEST',
          `Last-Event-ID: found ${JSON.stringify(after.slice(0, 64))}; ` +
            'allowed is the id of an event, digits',
        );
      const stream = events.open({
        projectId: key.project_id,
        publicKey: key.key,
        after: after === '' ? null : after,
        follow: query.follow !== 'false',
      });
      // Proxies must forward each event at once.
      void reply
        .header('Cache-Control', 'no-store, no-transform')
        .header('X-Accel-Buffering', 'no');
      return sendStream(reply, 'text/event-stream', stream);
    },
  );
}

const ofOperation = Type.Object({ project_id: Type.String(), operation_id: Type.String() });

export function operationRoutes(api: App, context: ApiContext): void {
  const { store } = context;
  api.get(
    '/projects/:project_id/operations',
    {
      schema: {
        operationId: 'listOperations',
        summary: 'List operations, newest first',
        description: 'Every accepted change is an operation.',
        tags: ['operations'],
        params: ofProject,
        querystring: Type.Object({
          ...paging('position'),
          service_id: Type.Optional(Type.String({ maxLength: 64 })),
          kind: Type.Optional(StringEnum(OPERATION_KINDS)),
          status: Type.Optional(StringEnum(OPERATION_STATUSES)),
        }),
        response: { 200: Type.Array(Ref(OperationSchema)) },
      },
    },
    async (request, reply) => {
      const { service_id: serviceId, kind, status } = request.query;
      const filter = {
        ...(serviceId === undefined || serviceId === '' ? {} : { serviceId: cleanId(serviceId) }),
        ...(kind === undefined ? {} : { kind }),
        ...(status === undefined ? {} : { status }),
      };
      return sendList(request, reply, 'position', async (after, limit) =>
        pageOf(
          await listOperations(store.db, request.key.project_id, filter, after, limit + 1),
          limit,
          (row) => operationDocument(row),
          (row) => row.position,
        ),
      );
    },
  );

  api.get(
    '/projects/:project_id/operations/:operation_id',
    {
      schema: {
        operationId: 'getOperation',
        summary: 'Get an operation with its steps',
        description:
          'For a running operation, remaining_seconds estimates how long it still takes.',
        tags: ['operations'],
        params: ofOperation,
        response: { 200: Ref(OperationSchema) },
      },
    },
    async (request) =>
      describeOperation(context, request.key.project_id, request.params.operation_id),
  );

  api.post(
    '/projects/:project_id/operations/:operation_id/cancel',
    {
      schema: {
        operationId: 'cancelOperation',
        summary: 'Cancel an operation',
        description:
          'Possible where it is safe: verifyBackup, runBackup and tryUpgrade while they ' +
          'run, drill and switchover before they have begun. Others run to their end; the ' +
          'answer says what to do instead. A cancelled operation has the status failed, and ' +
          'its error says who cancelled it.',
        tags: ['operations'],
        params: ofOperation,
        response: { 200: Ref(OperationSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await cancelOperation(context, callerOf(request), request.params.operation_id)),
  );
}

/** PostgreSQL cannot store NUL, so no id contains it, and a query with one would fail. */
function cleanId(id: string): string {
  return id.replaceAll('\0', '?');
}
