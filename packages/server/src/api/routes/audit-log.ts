import {
  ApiError,
  AUDIT_OUTCOMES,
  AuditEntrySchema,
  documented,
  Ref,
  StringEnum,
} from '@howdah/contract';
import { Readable } from 'node:stream';
import { Type } from 'typebox';
import { parseMoment } from '../../lib/moment.ts';
import { auditDocument, listAuditEntries, type AuditFilter } from '../../store/audit-log.ts';
import type { Db } from '../../store/tables.ts';
import type { ApiContext, App } from '../context.ts';
import { pageOf, paging, sendList } from '../paging.ts';
import { sendStream } from '../reply.ts';
import { ofProject } from './schemas.ts';

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
          'Every call that may change something, allowed or refused. The contents of requests are not kept.',
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
    `${name}: found ${JSON.stringify(text.slice(0, 64))}; expected a date-time like 2026-01-31T12:00:00Z`,
  );
}
