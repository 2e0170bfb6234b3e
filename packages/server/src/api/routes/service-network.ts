/** Pooler and VPC of a service. */
import { AttachBody, DetachBody, MessageBody, Ref } from '@howdah/contract';
import {
  attachToVpc,
  detachFromVpc,
  enableServicePooler,
  disableServicePooler,
} from '../../services/service-network.ts';
import type { ApiContext, App } from '../context.ts';
import { answer, callerOf } from '../changes.ts';
import { ofService } from './schemas.ts';

export function networkRoutes(api: App, context: ApiContext): void {
  poolerRoutes(api, context);
  attachmentRoutes(api, context);
}

function poolerRoutes(api: App, context: ApiContext): void {
  for (const [action, change] of [
    ['enablePooler', enableServicePooler],
    ['disablePooler', disableServicePooler],
  ] as const) {
    api.post(
      `/projects/:project_id/services/:service_id/${action}`,
      {
        schema: {
          operationId: action,
          summary: `${action === 'enablePooler' ? 'Enable' : 'Disable'} the connection pooler`,
          description:
            'PgBouncer in front of the service, on its own port, which stays reserved. For a paused service it takes effect at the next start.',
          tags: ['services'],
          params: ofService,
          response: { 200: Ref(MessageBody) },
        },
      },
      async (request, reply) =>
        answer(reply, await change(context, callerOf(request), request.service.key)),
    );
  }
}

function attachmentRoutes(api: App, context: ApiContext): void {
  api.post(
    '/projects/:project_id/services/:service_id/attachToVPC',
    {
      schema: {
        operationId: 'attachToVPC',
        summary: 'Attach a service to a VPC',
        description:
          'From then on only clients of the VPC and of its peers can connect. The public endpoint stays reserved.',
        tags: ['VPCs'],
        params: ofService,
        body: Ref(AttachBody),
        response: { 202: Ref(MessageBody) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await attachToVpc(context, callerOf(request), request.service.key, request.body.vpc_id),
      ),
  );

  api.post(
    '/projects/:project_id/services/:service_id/detachFromVPC',
    {
      // The body may be missing, since all its fields are optional.
      preValidation: async (request) =>
        void (request.body = request.body === undefined ? {} : request.body),
      schema: {
        operationId: 'detachFromVPC',
        summary: 'Detach a service from its VPC',
        description: 'Its public endpoint, the same as before, accepts all clients again.',
        tags: ['VPCs'],
        params: ofService,
        body: Ref(DetachBody),
        response: { 202: Ref(MessageBody) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await detachFromVpc(
          context,
          callerOf(request),
          request.service.key,
          request.body.vpc_id ?? null,
        ),
      ),
  );
}
