import { DeletedServiceSchema, MemberSchema, Ref } from '@howdah/contract';
import { Type } from 'typebox';
import { restorableUntilMs } from '../../domain/service/removal.ts';
import { readServers } from '../../services/service-reads.ts';
import { listDeletedServices } from '../../store/service-documents.ts';
import type { ApiContext, App } from '../context.ts';
import { ofProject, ofService } from './schemas.ts';

/** The servers of a service, and the deleted services of a project. */
export function memberRoutes(api: App, context: ApiContext): void {
  const { store, restoreWindowMs } = context;
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
    async (request) =>
      (await listDeletedServices(store.db, request.key.project_id))
        // From a repository that was removed, nothing is restored until it is added again.
        .filter(({ kept, repository }) => kept === null || repository !== null)
        .map((row) => deletedDocument(row, restoreWindowMs)),
  );
}

type DeletedRow = Awaited<ReturnType<typeof listDeletedServices>>[number];

function deletedDocument(row: DeletedRow, restoreWindowMs: number) {
  const { id, name, service_type, environment, created_by, deleted_at, repository } = row;
  const untilMs = restorableUntilMs(row, restoreWindowMs);
  return {
    service_id: id,
    name,
    service_type,
    environment,
    ...(created_by === null ? {} : { created_by }),
    deleted: new Date(deleted_at ?? 0).toISOString(),
    ...(untilMs === null ? {} : { restorable_until: new Date(untilMs).toISOString() }),
    ...(repository === null ? {} : { repository }),
  };
}
