/** Reads that ask the engine or the samples: logs, metrics, statements, members, backups. */
import {
  ALLOWED,
  ApiError,
  DATABASE_NAME,
  type Backup,
  type Backups,
  type Service,
  type QueryBody,
  type QueryResult,
  refusal,
  SERIES_FUNCTIONS,
  SERIES_NAMES,
  TIGER_SERIES,
  type SeriesFunction,
  type SeriesBody,
} from '@howdah/contract';
import { backupsIn } from '../domain/backup-list.ts';
import { SYSTEM_DATABASES } from '../domain/postgres/databases.ts';
import { offMachineDocument } from '../domain/repository/document.ts';
import { bucketFor } from '../domain/series.ts';
import { BadCursor, type LogPage, type LogQuery, StatementRefused } from '../engine/engine.ts';
import { statesInRepositories } from '../engine/off-machine.ts';
import type { ControlContext } from './control-context.ts';
import { refuseImpossible } from './regions.ts';
import { reachEngine } from './service-rules.ts';
import { readRecord } from '../store/engine-records.ts';
import { listRepositories } from '../store/repositories.ts';
import { readSeries, sampledNodes, TOTAL_NODE } from '../store/samples.ts';
import type { ServiceDoc, ServicePlace } from '../store/service-documents.ts';
import { readOwnRetention } from '../store/services.ts';

/** @param signal aborts the work when the client leaves */
export async function readLogPage(
  context: ControlContext,
  { key: id, region_code: region }: ServicePlace,
  node: number | null,
  query: LogQuery,
  signal: AbortSignal,
): Promise<LogPage> {
  const { engine } = context.regions.of(region);
  try {
    return await context.logReads(id, signal, () =>
      reachEngine(() => engine.observe.logs(id, node, query, signal)),
    );
  } catch (error) {
    if (error instanceof BadCursor) throw new ApiError('INVALID_REQUEST', error.message);
    throw error;
  }
}

export async function runStatement(
  context: ControlContext,
  { key: id, region_code: region, parent_id: parent, status }: ServiceDoc,
  body: QueryBody,
): Promise<QueryResult> {
  if (ALLOWED[status].query !== 'accept')
    throw new ApiError('INVALID_STATE', refusal('query', status));
  const { sql, database = DATABASE_NAME, parameters = [] } = body;
  const { max_rows: maxRows = 100, timeout_ms: timeoutMs = 10_000 } = body;
  // PostgreSQL's protocol ends each text with a NUL character.
  if ([sql, database, ...parameters].some((text) => text?.includes('\0') === true))
    throw new ApiError(
      'INVALID_REQUEST',
      'sql, database, parameters: found a NUL character, which no text of PostgreSQL can hold',
    );
  if (SYSTEM_DATABASES.includes(database))
    throw new ApiError(
      'INVALID_REQUEST',
      `database: ${database} belongs to the server; a statement runs in a database of users, ` +
        `which SELECT datname FROM pg_database lists`,
    );
  const served = context.regions.of(region);
  refuseImpossible(served, 'query');
  const { engine } = served;
  try {
    return await reachEngine(() =>
      engine.sql.query(id, parent, { sql, database, parameters, maxRows, timeoutMs }),
    );
  } catch (error) {
    if (error instanceof StatementRefused) throw refusedStatement(error);
    throw error;
  }
}

/** The names of all series: ours, and those of Tiger Cloud. */
export const AVAILABLE_SERIES = [...SERIES_NAMES, ...Object.keys(TIGER_SERIES)];

export async function readMetricSeries(
  context: ControlContext,
  { key: id, parent_id: parent }: ServiceDoc,
  body: SeriesBody,
) {
  const name =
    SERIES_NAMES.find((candidate) => candidate === body.name) ??
    Object.entries(TIGER_SERIES).find(([candidate]) => candidate === body.name)?.[1];
  if (name === undefined)
    throw new ApiError(
      'INVALID_REQUEST',
      `name: found ${JSON.stringify(body.name)}; allowed: ${AVAILABLE_SERIES.join(', ')}`,
    );
  const [fromMs, toMs] = [Date.parse(body.from), Date.parse(body.to)];
  // A leap second is a valid date-time that parses to NaN, so the comparison must be written in
  // this way.
  if (!(fromMs < toMs))
    throw new ApiError('INVALID_REQUEST', `from: ${body.from} is not before to: ${body.to}`);
  const bucketSeconds = body.bucket_seconds ?? bucketFor(toMs - fromMs);
  const buckets = Math.ceil((toMs - fromMs) / (bucketSeconds * 1000));
  if (buckets > MAX_BUCKETS) {
    const least = Math.ceil((toMs - fromMs) / 1000 / MAX_BUCKETS);
    throw new ApiError(
      'INVALID_REQUEST',
      `bucket_seconds: found ${bucketSeconds}, which makes ${buckets} points; ` +
        `at most ${MAX_BUCKETS} are answered: take ${least} or more`,
    );
  }
  const fn = functionOf(body.fn ?? 'last');
  const span = { from: new Date(fromMs), to: new Date(toMs) };
  const { db } = context.store;
  const primary = parent === null ? ((await readRecord(db, id))?.primary ?? 0) : null;
  const labelsOf = (node: number) => ({
    node: String(node),
    role: node === primary ? 'primary' : 'replica',
  });
  const isAsked = (node: number): boolean => hasLabels(labelsOf(node), body.filters ?? []);
  const sampled = await sampledNodes(db, id, span);
  // Services without samples return an empty series. The nodes of a set begin with 1.
  const nodes = (sampled.length === 0 ? [primary ?? 1] : sampled).filter(isAsked);
  const isTotal = fn === 'min_total' || fn === 'max_total';
  const found = await readSeries(db, id, { name, ...span, bucketSeconds, fn, nodes, isTotal });
  const times = Array.from({ length: buckets }, (_, index) =>
    new Date(fromMs + index * bucketSeconds * 1000).toISOString(),
  );
  const dataOf = (node: number) =>
    times.map((time, index) => ({ time, value: found.get(node)?.get(index) ?? null }));
  if (isTotal) return nodes.length === 0 ? [] : [{ labels: {}, data: dataOf(TOTAL_NODE) }];
  return nodes.map((node) => ({ labels: labelsOf(node), data: dataOf(node) }));
}

const hasLabels = (labels: Readonly<Record<string, string>>, filters: Filters): boolean =>
  filters.every(({ key, value }) => Object.hasOwn(labels, key) && labels[key] === value);

type Filters = NonNullable<SeriesBody['filters']>;

function functionOf(fn: string): SeriesFunction {
  const name = fn.toLowerCase();
  const known = SERIES_FUNCTIONS.find((candidate) => candidate === name);
  if (known === undefined) throw new Error(`the schema allowed the function ${fn}`);
  return known;
}

export async function readBackups(
  { store, regions }: ControlContext,
  { key: id, region_code: region }: ServicePlace,
): Promise<Backups> {
  const { backups, storage, offMachine } = regions.of(region).engine;
  const repositories = await listRepositories(store.db);
  const states = await statesInRepositories(offMachine, id);
  const own = await readOwnRetention(store.db, id);
  return {
    ...(await backups.describe(id)),
    storage: await storage.shared(id),
    own_retention_days: own,
    off_machine: repositories.flatMap((repository) => {
      const state = states.get(repository.id);
      return state === undefined ? [] : [offMachineDocument(repository, own, state)];
    }),
  };
}

/** The backups of a service, in the form of Tiger Cloud. */
export async function listBackups(
  { store, regions }: ControlContext,
  { key: id, region_code: region, doc }: ServiceDoc,
): Promise<Backup[]> {
  const { backups, offMachine } = regions.of(region).engine;
  // The document shows the region by the name that the service was asked for.
  const { region_code }: Pick<Service, 'region_code'> = JSON.parse(doc);
  const states = await statesInRepositories(offMachine, id);
  const copies = (await listRepositories(store.db)).map(({ id: repository, name }) => ({
    name,
    backups: states.get(repository)?.backups ?? [],
  }));
  return backupsIn(region_code, (await backups.describe(id)).snapshots, copies);
}

export function readServers(
  { regions }: ControlContext,
  { key: id, region_code: region }: ServicePlace,
) {
  const { engine } = regions.of(region);
  return reachEngine(() => engine.observe.servers(id));
}

/** Points of one series. More are refused. */
const MAX_BUCKETS = 11_000;

/** The API's answer to a statement that PostgreSQL refused. */
function refusedStatement({
  message,
  sqlstate,
  position,
  detail,
  hint,
}: StatementRefused): ApiError {
  const where = position === null ? '' : `, at character ${position}`;
  return new ApiError(
    'INVALID_REQUEST',
    `sql: ${message} (SQLSTATE ${sqlstate}${where})${hint === null ? '' : `; ${hint}`}`,
    {
      sqlstate,
      ...(position === null ? {} : { position }),
      ...(detail === null ? {} : { detail }),
      ...(hint === null ? {} : { hint }),
    },
  );
}
