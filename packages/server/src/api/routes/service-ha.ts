/** Replicas of a service, changes of its primary, and rehearsals. */
import { DrillBody, Ref, ServiceSchema, SetHABody } from '@howdah/contract';
import { setReplicas, startDrill, switchOver } from '../../services/replicas.ts';
import type { ApiContext, App } from '../context.ts';
import { answer, callerOf } from '../changes.ts';
import { ofService } from './schemas.ts';

export function highAvailabilityRoutes(api: App, context: ApiContext): void {
  api.post(
    '/projects/:project_id/services/:service_id/setHA',
    {
      schema: {
        operationId: 'setHA',
        summary: 'Set the number of standbys',
        description:
          'Missing fields stay unchanged. A synchronous standby has every write before it is acknowledged.',
        tags: ['high availability'],
        params: ofService,
        body: Ref(SetHABody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await setReplicas(context, callerOf(request), request.service.key, request.body),
      ),
  );

  api.post(
    '/projects/:project_id/services/:service_id/switchover',
    {
      schema: {
        operationId: 'switchover',
        summary: 'Make a standby the primary',
        description:
          'A planned change: no acknowledged write is lost. Sessions end; new ones wait for a moment.',
        tags: ['high availability'],
        params: ofService,
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await switchOver(context, callerOf(request), request.service)),
  );

  api.post(
    '/projects/:project_id/services/:service_id/drill',
    {
      schema: {
        operationId: 'drill',
        summary: 'Rehearse a failover or a switchover',
        description:
          'Howdah writes meanwhile: the operation reports how long writes were not possible, and how many were lost.',
        tags: ['high availability'],
        params: ofService,
        body: Ref(DrillBody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await startDrill(context, callerOf(request), request.service, request.body.kind),
      ),
  );
}
