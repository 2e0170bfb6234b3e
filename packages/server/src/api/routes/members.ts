import { DeletedServiceSchema, MemberSchema, Ref } from '@howdah/contract';
import { Type } from 'typebox';
import { restoreRisk, type RestoreRisk } from '../../domain/disk.ts';
import { restorableUntilMs } from '../../domain/service/removal.ts';
import { readServers } from '../../services/service-reads.ts';
import { listDeletedServices } from '../../store/service-documents.ts';
import type { ApiContext, App } from '../context.ts';
import { ofProject, ofService } from './schemas.ts';

/** The servers of a service, and the deleted services of a project. */
export function memberRoutes(api: App, context: ApiContext): void {
  const { store, regions, restoreWindowMs } = context;
  api.get(
    '/projects/:project_id/services/:service_id/members',
    {
      schema: {
        operationId: 'listMembers',
        summary: 'List the servers of a service',
        description: 'The primary and its standbys, in their current state.',
        tags: ['high availability'],
        params: ofService,
        response: { 200: Type.Array(Ref(MemberSchema)) },
      },
    },
    async (request) => readServers(context, request.service),
  );

  api.get(
    '/projects/:project_id/deletedServices',
    {
      schema: {
        operationId: 'listDeletedServices',
        summary: 'List the deleted services that can be restored, newest first',
        tags: ['backups'],
        params: ofProject,
        response: { 200: Type.Array(Ref(DeletedServiceSchema)) },
      },
    },
    async (request) => {
      const rows = await listDeletedServices(store.db, request.key.project_id);
      const codes = new Set(rows.map(({ region_code: code }) => code));
      const risks = new Map<string, RestoreRisk | null>();
      for (const { code, engine } of regions.all.filter((region) => codes.has(region.code)))
        risks.set(code, restoreRisk(await engine.storage.disk()));
      return (
        rows
          // From a repository that was removed, nothing is restored until it is added again.
          .filter(({ kept, repository }) => kept === null || repository !== null)
          .map((row) => deletedDocument(row, restoreWindowMs, risks.get(row.region_code) ?? null))
      );
    },
  );
}

type DeletedRow = Awaited<ReturnType<typeof listDeletedServices>>[number];

/** @param risk what may end the time early; null: nothing, or its region is switched off */
function deletedDocument(row: DeletedRow, restoreWindowMs: number, risk: RestoreRisk | null) {
  const { id, name, service_type, environment, created_by, deleted_at, repository, kept } = row;
  const untilMs = restorableUntilMs(row, restoreWindowMs);
  const ownRisk = kept === null ? risk : null;
  return {
    service_id: id,
    name,
    service_type,
    environment,
    ...(created_by === null ? {} : { created_by }),
    deleted: new Date(deleted_at ?? 0).toISOString(),
    ...(untilMs === null ? {} : { restorable_until: new Date(untilMs).toISOString() }),
    ...(ownRisk === null ? {} : { restore_note: ownRisk.note }),
    restore_at_risk: ownRisk?.isHigh === true,
    ...(repository === null ? {} : { repository }),
  };
}
