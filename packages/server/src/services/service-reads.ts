/** Reads that ask the engine or the samples: logs, metrics, statements, members, backups. */
import {
  ALLOWED,
  ApiError,
  type Backups,
  type QueryBody,
  type QueryResult,
  refusal,
  SERIES_NAMES,
  type SeriesBody,
} from '@howdah/contract';
import { BadCursor, type LogPage, type LogQuery, StatementRefused } from '../engine/engine.ts';
import type { ControlContext } from './context.ts';
import { refuseImpossible } from './regions.ts';
import { reachEngine } from './service-rules.ts';
import { readSeries } from '../store/samples.ts';
import type { ServiceDoc, ServicePlace } from '../store/service-documents.ts';

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
    return await context.logReads(id, signal, () => engine.observe.logs(id, node, query, signal));
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
  const { sql, parameters = [], max_rows: maxRows = 100, timeout_ms: timeoutMs = 10_000 } = body;
  // PostgreSQL's protocol ends each text with a NUL character.
  if ([sql, ...parameters].some((text) => text?.includes('\0') === true))
    throw new ApiError(
      'INVALID_REQUEST',
      'sql, parameters: found a NUL character, which no text of PostgreSQL can hold',
    );
  const served = context.regions.of(region);
  refuseImpossible(served, 'query');
  const { engine } = served;
  try {
    return await reachEngine(() =>
      engine.sql.query(id, parent, { sql, parameters, maxRows, timeoutMs }),
    );
  } catch (error) {
    if (error instanceof StatementRefused) throw refusedStatement(error);
    throw error;
  }
}

/** @param firstNode the node of the empty series of a service without samples */
export async function readMetricSeries(
  context: ControlContext,
  id: string,
  firstNode: number,
  body: SeriesBody,
) {
  const name = SERIES_NAMES.find((candidate) => candidate === body.name);
  if (name === undefined)
    throw new ApiError(
      'INVALID_REQUEST',
      `name: found ${JSON.stringify(body.name)}; allowed: ${SERIES_NAMES.join(', ')}`,
    );
  const [fromMs, toMs, bucketSeconds] = [
    Date.parse(body.from),
    Date.parse(body.to),
    body.bucket_seconds ?? 60,
  ];
  // A leap second is a valid date-time that parses to NaN, so the comparison must be written in
  // this way.
  if (!(fromMs < toMs))
    throw new ApiError('INVALID_REQUEST', `from: ${body.from} is not before to: ${body.to}`);
  const buckets = Math.ceil((toMs - fromMs) / (bucketSeconds * 1000));
  if (buckets > MAX_BUCKETS) {
    const least = Math.ceil((toMs - fromMs) / 1000 / MAX_BUCKETS);
    throw new ApiError(
      'INVALID_REQUEST',
      `bucket_seconds: found ${bucketSeconds}, which makes ${buckets} points; at most ${MAX_BUCKETS} are answered: take ${least} or more`,
    );
  }
  const span = {
    name,
    from: new Date(fromMs),
    to: new Date(toMs),
    bucketSeconds,
    fn: body.fn ?? 'avg',
  };
  const found = await readSeries(context.store.db, id, span);
  const times = Array.from({ length: buckets }, (_, index) =>
    new Date(fromMs + index * bucketSeconds * 1000).toISOString(),
  );
  // The only label is the node. Services without samples return an empty series.
  const matches = (node: string) =>
    (body.filters ?? []).every(({ key, value }) => key === 'node' && value === node);
  const nodes = found.size === 0 ? [firstNode] : [...found.keys()];
  return nodes
    .filter((node) => matches(String(node)))
    .map((node) => ({
      labels: { node: String(node) },
      data: times.map((time, index) => ({ time, value: found.get(node)?.get(index) ?? null })),
    }));
}

export async function readBackups(
  { regions }: ControlContext,
  { key: id, region_code: region }: ServicePlace,
): Promise<Backups> {
  const { backups, storage } = regions.of(region).engine;
  return { ...(await backups.describe(id)), storage: await storage.shared(id) };
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
