/** Changes of exporters, and of the services that they are attached to. */
import {
  ApiError,
  isExporterId,
  MAX_EXPORTERS,
  REFUSED_EXPORTER_TYPES,
  type CreateExporterBody,
  type ExporterConfig,
  type ExporterType,
  type RefusedExporterType,
  type UpdateExporterBody,
} from '@howdah/contract';
import type { BlockList } from 'node:net';
import { exporterDocument, type PublicConfig } from '../domain/exporter/document.ts';
import { headersProblem } from '../domain/exporter/formats.ts';
import { whyNotUrl } from '../events/outgoing-request.ts';
import { openSecrets, sealSecrets, type ExporterSecrets } from '../export/secrets.ts';
import {
  deleteExporterRow,
  exportFromNow,
  findExporter,
  insertExporter,
  lockExporter,
  updateExporterRow,
  type ExporterRow,
} from '../store/exporters.ts';
import { lockAndCount, servicesWith } from '../store/resources.ts';
import { changeService, lockService } from '../store/services.ts';
import type { Db, Tx } from '../store/tables.ts';
import { answerWith, makeChange, type Caller, type Outcome } from './change.ts';
import { regionOrRefuse } from './regions.ts';
import { lockOwnService } from './service-rules.ts';
import type { WebhookContext } from './webhooks.ts';

/** @throws ApiError NOT_FOUND */
export async function findExporterOrRefuse(
  db: Db,
  projectId: string,
  id: string,
): Promise<ExporterRow> {
  const found = isExporterId(id) ? await findExporter(db, projectId, id) : null;
  if (found === null) throw exporterNotFound(id);
  return found;
}

function exporterNotFound(id: string): ApiError {
  return new ApiError(
    'NOT_FOUND',
    `no exporter with that id exists: ${JSON.stringify(id.slice(0, 64))}; ` +
      'GET /projects/{project_id}/exporters lists them',
  );
}

const INSTEAD = 'PROMETHEUS_METRICS, PROMETHEUS_REMOTE_WRITE or OTLP_METRICS';
const WHY_REFUSED: Record<RefusedExporterType, string> = {
  DATADOG_METRICS: `Howdah has no client for Datadog; an agent of Datadog reads ${INSTEAD}`,
  CLOUDWATCH_METRICS: `Howdah has no client for AWS; the agent of CloudWatch reads ${INSTEAD}`,
  CLOUDWATCH_LOGS: 'Howdah has no client for AWS, and exports no logs; GET …/logs reads them',
  AZURE_MONITOR_METRICS: `Howdah has no client for Azure; Azure Monitor reads ${INSTEAD}`,
};

function isRefused(type: ExporterType | RefusedExporterType): type is RefusedExporterType {
  return REFUSED_EXPORTER_TYPES.some((refused) => refused === type);
}

/** A checked configuration: what answers may show, and what they may not. */
type Checked = { shown: PublicConfig; secrets: ExporterSecrets };

const invalid = (message: string): ApiError => new ApiError('INVALID_REQUEST', `config.${message}`);

/** The fields of the configuration that each type has. */
const FIELDS: Record<ExporterType, readonly (keyof ExporterConfig)[]> = {
  PROMETHEUS_METRICS: ['username', 'password', 'enable_pg_metrics'],
  PROMETHEUS_REMOTE_WRITE: ['url', 'username', 'password', 'bearer_token', 'enable_pg_metrics'],
  OTLP_METRICS: ['url', 'headers', 'enable_pg_metrics'],
};

/** A configuration with the names that fields have now. */
function currentNames({ include_pg_metrics: old, ...config }: ExporterConfig): ExporterConfig {
  const { enable_pg_metrics: enabled = old } = config;
  if (old !== undefined && enabled !== old)
    throw invalid(
      `include_pg_metrics: found ${old} beside enable_pg_metrics: ${enabled}, its name now`,
    );
  return { ...config, ...(enabled === undefined ? {} : { enable_pg_metrics: enabled }) };
}

/**
 * Checks the configuration of an exporter.
 *
 * @param kept the secrets that it has already; they go to the same URL only
 */
async function configOrRefuse(
  type: ExporterType,
  given: ExporterConfig,
  allowed: BlockList,
  kept: ExporterSecrets,
): Promise<Checked> {
  const config = currentNames(given);
  const foreign = Object.keys(config).find((name) => !FIELDS[type].some((own) => own === name));
  if (foreign !== undefined)
    throw invalid(`${foreign}: the type ${type} takes ${FIELDS[type].join(', ')}`);
  const { url, username, password, bearer_token, headers, enable_pg_metrics } = config;
  const shown: PublicConfig = {
    ...(url === undefined ? {} : { url: await urlOrRefuse(url, allowed) }),
    ...(username === undefined ? {} : { username: usernameOrRefuse(username) }),
    ...(enable_pg_metrics === undefined ? {} : { enable_pg_metrics }),
  };
  if (type !== 'PROMETHEUS_METRICS' && url === undefined)
    throw invalid('url: missing; it is where samples are pushed to');
  const secrets: ExporterSecrets =
    type === 'OTLP_METRICS'
      ? headersOrRefuse(headers ?? kept.headers)
      : loginOrRefuse(type, username, password, bearer_token, kept);
  const names = Object.keys(secrets.headers ?? {});
  return { shown: { ...shown, ...(names.length === 0 ? {} : { header_names: names }) }, secrets };
}

async function urlOrRefuse(text: string, allowed: BlockList): Promise<string> {
  const problem = await whyNotUrl(text, allowed, 'send them in fields of their own');
  if (problem !== null) throw invalid(`url: ${problem}`);
  return new URL(text).href;
}

function usernameOrRefuse(username: string): string {
  if (username.includes(':'))
    throw invalid('username: found a colon, which ends a username in Basic authentication');
  return username;
}

function headersOrRefuse(headers: Record<string, string> | undefined): ExporterSecrets {
  if (headers === undefined || Object.keys(headers).length === 0) return {};
  const problem = headersProblem(headers);
  if (problem !== null) throw invalid(`headers: ${problem}`);
  return { headers };
}

/** A username comes with a password, and a token comes alone. */
function loginOrRefuse(
  type: ExporterType,
  username: string | undefined,
  password: string | undefined,
  token: string | undefined,
  kept: ExporterSecrets,
): ExporterSecrets {
  if (token !== undefined && (username !== undefined || password !== undefined))
    throw invalid('bearer_token: found beside username or password; send one of them');
  if (token !== undefined) return { bearer_token: token };
  const known = password ?? kept.password;
  if (username === undefined) {
    if (type === 'PROMETHEUS_METRICS' || password !== undefined)
      throw invalid('username: missing; a password needs one');
    return kept.bearer_token === undefined ? {} : { bearer_token: kept.bearer_token };
  }
  if (known === undefined) throw invalid('password: missing; a username needs one');
  return { password: known };
}

export async function createExporter(
  { store, regions, webhooks: { sealer, allowed } }: WebhookContext,
  caller: Caller,
  { name, type, region_code, config }: CreateExporterBody,
  origin: string,
): Promise<Outcome> {
  if (isRefused(type))
    throw new ApiError('UNAVAILABLE_HERE', `type: ${type}: ${WHY_REFUSED[type]}`);
  const { region, alias } = regionOrRefuse(regions, region_code);
  const { shown, secrets } = await configOrRefuse(type, config, allowed, {});
  return makeChange(store, caller, async (tx) => {
    const count = await lockAndCount(tx, 'exporters', caller.projectId);
    if (count >= MAX_EXPORTERS)
      throw new ApiError(
        'LIMIT_EXCEEDED',
        `exporters: the project has ${count}, of ${MAX_EXPORTERS} that are allowed; ` +
          'delete one first',
      );
    const made = await insertExporter(tx, {
      project_id: caller.projectId,
      region_code: region.code,
      region_alias: alias,
      name,
      type,
      config: shown,
      secret: sealSecrets(sealer, secrets),
    });
    return answerWith(exporterDocument(made, origin));
  });
}

/** Changes an exporter. Secrets that are left out stay, unless they would go to another URL. */
export async function updateExporter(
  { store, webhooks: { sealer, allowed } }: WebhookContext,
  caller: Caller,
  id: string,
  { name, type, config }: UpdateExporterBody,
  origin: string,
): Promise<Outcome> {
  const before = await findExporterOrRefuse(store.db, caller.projectId, id);
  if (type !== undefined && type !== before.type)
    throw new ApiError(
      'INVALID_REQUEST',
      `type: found ${type}; the exporter is of the type ${before.type}, which never changes`,
    );
  const kept = openSecrets(sealer, before.secret) ?? {};
  const isElsewhere = config?.url !== undefined && config.url !== before.config.url;
  // A secret must not be sent to a URL that somebody else chooses.
  const mayKeep = isElsewhere ? {} : kept;
  const checked =
    config === undefined
      ? null
      : await configOrRefuse(before.type, mergedConfig(before, config), allowed, mayKeep);
  return makeChange(store, caller, async (tx) => {
    const locked = await lockExporter(tx, caller.projectId, before.id, 'update');
    if (locked === null) throw exporterNotFound(id);
    const changed = await updateExporterRow(tx, before.id, {
      name: name ?? locked.name,
      config: checked === null ? locked.config : checked.shown,
      secret: checked === null ? locked.secret : sealSecrets(sealer, checked.secrets),
    });
    return answerWith(exporterDocument(changed, origin));
  });
}

/** A configuration with what it leaves out as it was. A token takes the place of a username. */
function mergedConfig({ config: before }: ExporterRow, config: ExporterConfig): ExporterConfig {
  const { url, username, enable_pg_metrics } = before;
  return {
    ...(url === undefined ? {} : { url }),
    ...(username === undefined || config.bearer_token !== undefined ? {} : { username }),
    ...(enable_pg_metrics === undefined ? {} : { enable_pg_metrics }),
    ...currentNames(config),
  };
}

/** Deletes an exporter that no service has. Deleted services lose it. */
export function deleteExporter(
  { store }: WebhookContext,
  caller: Caller,
  id: string,
): Promise<Outcome> {
  return makeChange(store, caller, async (tx) => {
    const { id: exporterId } = await findExporterOrRefuse(tx, caller.projectId, id);
    // Services before exporters: the order of all transactions that lock both.
    for (const service of await servicesWith(tx, 'metric_exporter_id', exporterId))
      if (!service.isListed) await takeFromDeleted(tx, service.id);
    if ((await lockExporter(tx, caller.projectId, exporterId, 'update')) === null)
      throw exporterNotFound(id);
    const services = await servicesWith(tx, 'metric_exporter_id', exporterId);
    if (services.length > 0) {
      const named = services.slice(0, MOST_NAMED).map((one) => `${one.id} (${one.name})`);
      const more = services.length - named.length;
      const all = more > 0 ? [...named, `${more} more`] : named;
      throw new ApiError(
        'CONFLICT',
        `the exporter ${exporterId} is attached to ${all.join(', ')}; ` +
          'detach it from them first (detachFromExporter)',
      );
    }
    await deleteExporterRow(tx, exporterId);
    return { operationId: null };
  });
}

const MOST_NAMED = 10;

async function takeFromDeleted(tx: Tx, serviceId: string): Promise<void> {
  const locked = await lockService(tx, serviceId);
  if (locked === null) return;
  const { service, operation } = locked;
  if (service.deleted_at === null && service.project_id !== null) return;
  await changeService(tx, service, { metric_exporter_id: null }, operation);
}

/** Attaches an exporter to a service, in place of the one that it has. */
export function attachToExporter(
  { store, regions }: WebhookContext,
  caller: Caller,
  id: string,
  wanted: string,
): Promise<Outcome> {
  return makeChange(store, caller, async (tx) => {
    const { service, operation } = await lockOwnService(tx, caller, id);
    const { id: exporterId } = await findExporterOrRefuse(tx, caller.projectId, wanted);
    const exporter = await lockExporter(tx, caller.projectId, exporterId, 'share');
    if (exporter === null) throw exporterNotFound(exporterId);
    if (exporter.region_code !== service.region_code)
      throw new ApiError(
        'INVALID_REQUEST',
        `exporter_id: the exporter ${exporterId} is in ${exporter.region_code}, ` +
          `the service in ${service.region_code}`,
      );
    regions.of(service.region_code);
    const message = `the exporter ${exporterId} gets the samples of the service`;
    if (service.metric_exporter_id === exporterId) return { message, operationId: null };
    await changeService(tx, service, { metric_exporter_id: exporterId }, operation);
    await exportFromNow(tx, id);
    return { message, operationId: null };
  });
}

export function detachFromExporter(
  { store }: WebhookContext,
  caller: Caller,
  id: string,
  wanted: string,
): Promise<Outcome> {
  return makeChange(store, caller, async (tx) => {
    const { service, operation } = await lockOwnService(tx, caller, id);
    const { id: exporterId } = await findExporterOrRefuse(tx, caller.projectId, wanted);
    const found = service.metric_exporter_id;
    if (found !== exporterId)
      throw new ApiError(
        'CONFLICT',
        `exporter_id: found ${JSON.stringify(exporterId)}; the service has ` +
          (found === null ? 'no exporter' : `the exporter ${found}`),
      );
    await changeService(tx, service, { metric_exporter_id: null }, operation);
    return {
      message: `the exporter ${exporterId} gets no more samples of the service`,
      operationId: null,
    };
  });
}
