/** Exporters, and the services that they are attached to. */
import {
  CreateExporterBody,
  ExporterInputBody,
  ExporterSchema,
  MessageBody,
  Ref,
  UpdateExporterBody,
  ApiError,
  isExporterId,
} from '@howdah/contract';
import { Type } from 'typebox';
import { exporterDocument, scrapePath } from '../../domain/exporter/document.ts';
import {
  attachToExporter,
  createExporter,
  deleteExporter,
  detachFromExporter,
  findExporterOrRefuse,
  updateExporter,
} from '../../services/exporters.ts';
import {
  listExporters,
  readExporter,
  readLatest,
  type ExporterRow,
} from '../../store/exporters.ts';
import { answer, callerOf } from '../change-requests.ts';
import type { ApiContext, App } from '../context.ts';
import { originOf } from '../hosts.ts';
import { ofProject, ofService, resourceSchemas } from './schemas.ts';
import { EXPOSITION_TYPE, expositionOf } from '../../domain/exporter/formats.ts';
import { openSecrets } from '../../export/secrets.ts';
import { isSecret, sha256 } from '../../lib/secret.ts';
import { createFailures } from '../errors.ts';

const EXPORTERS = '/projects/:project_id/exporters';
const EXPORTER = `${EXPORTERS}/:exporter_id`;
const exporters = resourceSchemas({
  tag: 'exporters',
  ofMany: ofProject,
  ofOne: Type.Object({ project_id: Type.String(), exporter_id: Type.String() }),
  document: ExporterSchema,
});

export function exporterRoutes(api: App, context: ApiContext): void {
  const { store } = context;
  api.get(
    EXPORTERS,
    exporters.list('listExporters', 'List the exporters, oldest first'),
    async (request) =>
      (await listExporters(store.db, request.key.project_id)).map((row) =>
        exporterDocument(row, originOf(request)),
      ),
  );

  api.get(EXPORTER, exporters.get('getExporter', 'Get an exporter'), async (request) => {
    const { exporter_id: id } = request.params;
    const found = await findExporterOrRefuse(store.db, request.key.project_id, id);
    return exporterDocument(found, originOf(request));
  });

  api.post(
    EXPORTERS,
    exporters.create(
      CreateExporterBody,
      'createExporter',
      'Create an exporter',
      'A receiver of the metrics of services: a Prometheus that scrapes, or a URL that ' +
        'samples are pushed to once a minute. No answer shows its secrets.',
    ),
    async (request, reply) => {
      const origin = originOf(request);
      return answer(reply, await createExporter(context, callerOf(request), request.body, origin));
    },
  );

  api.patch(
    EXPORTER,
    exporters.update(
      UpdateExporterBody,
      'updateExporter',
      'Change an exporter',
      'Secrets that are left out stay as they are, unless the URL changes. The type stays.',
    ),
    async (request, reply) => {
      const { exporter_id: id } = request.params;
      const origin = originOf(request);
      return answer(
        reply,
        await updateExporter(context, callerOf(request), id, request.body, origin),
      );
    },
  );

  api.delete(
    EXPORTER,
    exporters.delete('deleteExporter', 'Delete an exporter that no service has'),
    async (request, reply) =>
      answer(reply, await deleteExporter(context, callerOf(request), request.params.exporter_id)),
  );

  attachmentRoutes(api, context);
}

function attachmentRoutes(api: App, context: ApiContext): void {
  for (const [operationId, change, summary, description] of [
    [
      'attachToExporter',
      attachToExporter,
      'Attach an exporter to a service',
      'It gets the samples of the service and of its read replica sets from now on. ' +
        'It takes the place of another exporter.',
    ],
    [
      'detachFromExporter',
      detachFromExporter,
      'Detach an exporter from a service',
      'It gets no more samples of the service.',
    ],
  ] as const) {
    api.post(
      `/projects/:project_id/services/:service_id/${operationId}`,
      {
        schema: {
          operationId,
          summary,
          description,
          tags: ['exporters'],
          params: ofService,
          body: Ref(ExporterInputBody),
          response: { 200: Ref(MessageBody) },
        },
      },
      async (request, reply) => {
        const { exporter_id: exporterId } = request.body;
        const { key: id } = request.service;
        return answer(reply, await change(context, callerOf(request), id, exporterId));
      },
    );
  }
}

// The endpoint at which a Prometheus of users scrapes an exporter, with Basic authentication.

/** Compared where there is no exporter, so that the time of an answer does not show which exist. */
const NO_HASH = Buffer.alloc(32);

export function scrapeRoute(
  app: App,
  { store, webhooks, http: { failedKeysPerMinute } }: ApiContext,
): void {
  const failures = createFailures(failedKeysPerMinute);
  /** The hash of `username:password`; null: nothing is scraped there. */
  const loginOf = ({ type, config, secret }: ExporterRow): Buffer | null => {
    const password = openSecrets(webhooks.sealer, secret)?.password;
    return type !== 'PROMETHEUS_METRICS' || password === undefined
      ? null
      : sha256(`${config.username ?? ''}:${password}`);
  };
  app.get<{ Params: { exporter_id: string } }>(
    scrapePath(':exporter_id'),
    { config: { public: true }, schema: { hide: true } },
    async (request, reply) => {
      const { exporter_id: id } = request.params;
      const exporter = isExporterId(id) ? await readExporter(store.db, id) : null;
      const login = exporter === null ? null : loginOf(exporter);
      const presented = basicOf(request.headers.authorization);
      const matches = isSecret(presented ?? '', login ?? NO_HASH);
      if (exporter === null || login === null || !matches) {
        if (presented !== null && !failures.note(request.ip))
          throw new ApiError(
            'RATE_LIMITED',
            `Authorization: more than ${failedKeysPerMinute} logins from ${request.ip} were ` +
              'wrong within a minute; wait a minute, and use those of the exporter',
          );
        void reply.header('WWW-Authenticate', 'Basic realm="exporter"');
        throw new ApiError(
          'UNAUTHORIZED',
          'Authorization: not those of an exporter; use its username and password',
        );
      }
      const text = await expositionOf(await readLatest(store.db, exporter.id));
      return reply.type(EXPOSITION_TYPE).send(text);
    },
  );
}

/** `username:password` of a header; null: there is none. */
function basicOf(header: string | undefined): string | null {
  const value = /^Basic +([^ ]+) *$/i.exec(header ?? '')?.[1];
  return value === undefined ? null : Buffer.from(value, 'base64').toString('utf8');
}
