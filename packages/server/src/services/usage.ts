/** Measures the memory and disk that each service of a project takes. */
import type { ServiceUsage } from '@howdah/contract';
import pLimit from 'p-limit';
import { type Measured, usageDocument } from '../domain/service/usage.ts';
import { EngineUnavailable } from '../engine/engine.ts';
import { readProject } from './projects.ts';
import { listUsageFacts, type UsageRow } from '../store/usage.ts';
import type { ControlContext } from './control-context.ts';

/** Services that are measured at a time: each walks the files of its data. */
const AT_ONCE = 4;

/** The most services of an answer: all of them are measured for it. */
const MOST = 64;

export type UsagePage = Readonly<{ services: readonly ServiceUsage[]; next: string | null }>;

/**
 * A page of the services of a project, oldest first, with read replica sets, and deleted ones
 * whose data is kept.
 *
 * @param after the position of the last one of the page before; null: the first page
 * @throws ApiError NOT_FOUND if there is no such project
 */
export async function listUsage(
  context: ControlContext,
  projectId: string,
  restoreWindowMs: number,
  after: string | null,
  limit: number,
): Promise<UsagePage> {
  await readProject(context.store.db, projectId);
  const most = Math.min(limit, MOST);
  const rows = await listUsageFacts(context.store.db, projectId, after, most + 1);
  const inTurn = pLimit(AT_ONCE);
  const shown = rows.slice(0, most);
  const services = await Promise.all(
    shown.map((row) =>
      inTurn(async () => usageDocument(row, await measure(context, row), restoreWindowMs)),
    ),
  );
  return { services, next: rows.length > most ? (shown.at(-1)?.position ?? null) : null };
}

/** A region that is away must not hide what the services of others take. */
async function measure({ regions }: ControlContext, row: UsageRow): Promise<Measured> {
  const none = { storage: null, backupsMb: null };
  if (row.kept?.isRemoved === true) return { ...none, problem: null };
  try {
    const { storage, backups } = regions.of(row.region_code).engine;
    const { snapshots, archive_mb: archiveMb } = await backups.describe(row.id);
    return {
      storage: await storage.shared(row.id),
      backupsMb: snapshots.reduce((sum, { storage_mb: mb }) => sum + mb, archiveMb),
      problem: null,
    };
  } catch (error) {
    if (!(error instanceof EngineUnavailable)) throw error;
    return { ...none, problem: error.message };
  }
}
