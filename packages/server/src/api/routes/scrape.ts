/** The endpoint at which a Prometheus of users scrapes an exporter, with Basic authentication. */
import { ApiError, isExporterId } from '@howdah/contract';
import { scrapePath } from '../../domain/exporter/document.ts';
import { EXPOSITION_TYPE, expositionOf } from '../../domain/exporter/text.ts';
import { openSecrets } from '../../export/secrets.ts';
import { isSecret, sha256 } from '../../lib/secret.ts';
import { readExporter, readLatest, type ExporterRow } from '../../store/exporters.ts';
import type { ApiContext, App } from '../context.ts';
import { createFailures } from '../failures.ts';

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
