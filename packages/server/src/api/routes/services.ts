/** Services: create, list, get, delete, power, size and settings. */
import {
  AdoptBody,
  CreateServiceBody,
  MessageBody,
  MoveBody,
  Ref,
  RenameBody,
  ResizeBody,
  SERVICE_STATUSES,
  ServiceListSchema,
  ServiceSchema,
  SetEnvironmentBody,
  SetAutoSuspendBody,
  SetExpiryBody,
  StringEnum,
  UpdatePasswordBody,
  DrillBody,
  SetHABody,
  AttachBody,
  DetachBody,
} from '@howdah/contract';
import { Type } from 'typebox';
import { adoptService } from '../../services/adopt-service.ts';
import {
  renameService,
  startService,
  stopService,
  resizeService,
  restartService,
  setServiceEnvironment,
  updatePassword,
} from '../../services/change-service.ts';
import { createService } from '../../services/create-service.ts';
import { setAutoSuspend } from '../../services/auto-suspend.ts';
import { setExpiry } from '../../services/lifetimes.ts';
import { deleteService, purgeService } from '../../services/delete-service.ts';
import { moveService } from '../../services/move-service.ts';
import { listServiceDocuments } from '../../store/service-documents.ts';
import type { ApiContext, App } from '../context.ts';
import { answer, callerOf } from '../change-requests.ts';
import { paging, sendList } from '../paging.ts';
import { sendText } from '../reply.ts';
import { ForceQuery, ofProject, ofService } from './schemas.ts';
import { backupRoutes } from './service-backups.ts';
import { extensionRoutes, readRoutes } from './service-reads.ts';
import { setReplicas, startDrill, switchOver } from '../../services/replicas.ts';
import {
  attachToVpc,
  detachFromVpc,
  enableServicePooler,
  disableServicePooler,
} from '../../services/service-network.ts';

const DeleteQuery = Type.Object({
  purge: Type.Optional(
    StringEnum(['true', 'false'], {
      description: 'true: permanently, without a time for a restore',
    }),
  ),
  confirm: Type.Optional(
    Type.String({ maxLength: 256, description: 'the name of a PROD service that is purged' }),
  ),
});

const ServicesQuery = Type.Object({
  ...paging('position'),
  status: Type.Optional(
    StringEnum(SERVICE_STATUSES, { description: 'only those with this status' }),
  ),
});

/**
 * The routes of services. Each file of them is a topic; the order is that of the OpenAPI document.
 */
export function serviceRoutes(api: App, context: ApiContext): void {
  lifeRoutes(api, context);
  adoptRoutes(api, context);
  backupRoutes(api, context);
  powerRoutes(api, context);
  moveRoutes(api, context);
  networkRoutes(api, context);
  highAvailabilityRoutes(api, context);
  settingRoutes(api, context);
  readRoutes(api, context);
  extensionRoutes(api, context);
}

function lifeRoutes(api: App, context: ApiContext): void {
  api.get(
    '/projects/:project_id/services',
    {
      schema: {
        operationId: 'listServices',
        summary: 'List all services, oldest first',
        tags: ['services'],
        params: ofProject,
        querystring: ServicesQuery,
        response: { 200: ServiceListSchema },
      },
    },
    async (request, reply) =>
      sendList(request, reply, 'position', (after, limit) =>
        listServiceDocuments(
          context.store.pool,
          request.key.project_id,
          request.query.status ?? null,
          after,
          limit,
        ),
      ),
  );

  api.post(
    '/projects/:project_id/services',
    {
      schema: {
        operationId: 'createService',
        summary: 'Create a service',
        description:
          'The answer contains the final endpoint and the initial password, ' +
          'which no other answer contains.',
        tags: ['services'],
        params: ofProject,
        querystring: ForceQuery,
        body: Ref(CreateServiceBody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await createService(context, callerOf(request), request.body)),
  );

  api.get(
    '/projects/:project_id/services/:service_id',
    {
      config: { setsToo: true },
      schema: {
        operationId: 'getService',
        summary: 'Get a service',
        tags: ['services'],
        params: ofService,
        response: { 200: Ref(ServiceSchema) },
      },
    },
    // Not async: Fastify waits for the end of the answer of each promise, which costs a tenth of
    // such a call.
    (request, reply) => void sendText(reply, 200, request.service.doc),
  );

  api.delete(
    '/projects/:project_id/services/:service_id',
    {
      config: { purges: true },
      schema: {
        operationId: 'deleteService',
        summary: 'Delete a service',
        description:
          'The answer is the service as it is being deleted. ' +
          'It can be restored for a while, and its data stays as long. ' +
          'With purge=true (admin keys) a service, or a deleted one, is removed permanently.',
        tags: ['services'],
        params: ofService,
        querystring: DeleteQuery,
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) => {
      const { purge } = request.query;
      const [caller, place] = [callerOf(request), request.service];
      return answer(
        reply,
        purge === 'true'
          ? await purgeService(context, caller, place)
          : await deleteService(context, caller, place),
      );
    },
  );
}

function adoptRoutes(api: App, context: ApiContext): void {
  api.post(
    '/projects/:project_id/services/adopt',
    {
      schema: {
        operationId: 'adoptService',
        summary: 'Make a directory with the data of a service a service again',
        description:
          'Needs an admin key of the operator project. ' +
          'The directory is one that Howdah has made, ' +
          'in the data directory of a region on the machine, and that the metadata database does ' +
          'not know: it was restored from an older backup. The service has the id, data and ' +
          'passwords of before. The answer says what was assumed of the rest.',
        tags: ['services'],
        params: ofProject,
        body: Ref(AdoptBody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await adoptService(context, callerOf(request), request.body)),
  );
}

function powerRoutes(api: App, context: ApiContext): void {
  for (const [action, change] of [
    ['start', startService],
    ['stop', stopService],
  ] as const) {
    api.post(
      `/projects/:project_id/services/:service_id/${action}`,
      {
        schema: {
          operationId: `${action}Service`,
          summary: `${action === 'start' ? 'Start' : 'Stop'} a service`,
          tags: ['services'],
          params: ofService,
          response: { 202: Ref(ServiceSchema) },
        },
      },
      async (request, reply) =>
        answer(reply, await change(context, callerOf(request), request.service.key)),
    );
  }

  api.post(
    '/projects/:project_id/services/:service_id/restart',
    {
      schema: {
        operationId: 'restartService',
        summary: 'Restart a service',
        description:
          'Its servers start again, with the minor version of PostgreSQL that is installed now. ' +
          'Standbys and read replicas restart one after the other, then a standby becomes the ' +
          'primary; without one, new connections wait about a second. Sessions end.',
        tags: ['services'],
        params: ofService,
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await restartService(context, callerOf(request), request.service.key)),
  );

  api.post(
    '/projects/:project_id/services/:service_id/resize',
    {
      schema: {
        operationId: 'resizeService',
        summary: 'Resize a service',
        tags: ['services'],
        params: ofService,
        querystring: ForceQuery,
        body: Ref(ResizeBody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await resizeService(context, callerOf(request), request.service, request.body)),
  );
}

function moveRoutes(api: App, context: ApiContext): void {
  api.post(
    '/projects/:project_id/services/:service_id/move',
    {
      schema: {
        operationId: 'moveService',
        summary: 'Move a service to another region',
        description:
          'From a region on a machine to one on Kubernetes, or back. A copy follows the service, ' +
          'which then stops and goes on there, with another endpoint. The note of a dry run says ' +
          'what is copied; the error names everything that is in the way, and its `reasons` are ' +
          'a list of that. A cancel of the operation before the switch leaves the service as it ' +
          'was.',
        tags: ['services'],
        params: ofService,
        body: Ref(MoveBody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await moveService(context, callerOf(request), request.service, request.body)),
  );
}

function settingRoutes(api: App, context: ApiContext): void {
  api.post(
    '/projects/:project_id/services/:service_id/updatePassword',
    {
      schema: {
        operationId: 'updatePassword',
        summary: 'Update the password of tsdbadmin',
        description:
          'Active before the answer arrives. Open sessions of the role end in all servers of the ' +
          'service and of its read replica sets, and their poolers start again, unless ' +
          'keep_sessions is true; a session that holds a lock in the way ends in any case. A ' +
          'paused service has the new password when it starts.',
        tags: ['services'],
        params: ofService,
        body: Ref(UpdatePasswordBody),
        response: { 204: Type.Null({ description: 'the new password is active' }) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await updatePassword(context, callerOf(request), request.service.key, request.body),
      ),
  );

  api.post(
    '/projects/:project_id/services/:service_id/setEnvironment',
    {
      schema: {
        operationId: 'setEnvironment',
        summary: 'Set the environment tag',
        tags: ['services'],
        params: ofService,
        body: Ref(SetEnvironmentBody),
        response: { 200: Ref(MessageBody) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await setServiceEnvironment(
          context,
          callerOf(request),
          request.service.key,
          request.body.environment,
        ),
      ),
  );

  api.post(
    '/projects/:project_id/services/:service_id/setExpiry',
    {
      schema: {
        operationId: 'setExpiry',
        summary: 'Set when a service is deleted by itself',
        description:
          'Done when it is answered. The event service.expiring comes an hour before, or after ' +
          'three quarters of a shorter time. A PROD service never expires.',
        tags: ['services'],
        params: ofService,
        body: Ref(SetExpiryBody),
        response: { 200: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await setExpiry(context, callerOf(request), request.service.key, request.body)),
  );

  api.post(
    '/projects/:project_id/services/:service_id/setAutoSuspend',
    {
      schema: {
        operationId: 'setAutoSuspend',
        summary: 'Set when a service falls asleep',
        description:
          'When nobody has used it for so long, its server stops; its endpoint stays open, and ' +
          'the next client waits a moment until it runs again. Its server is started again for ' +
          'the first setting and for null, and not for another time.',
        tags: ['services'],
        params: ofService,
        body: Ref(SetAutoSuspendBody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await setAutoSuspend(context, callerOf(request), request.service.key, request.body),
      ),
  );

  api.post(
    '/projects/:project_id/services/:service_id/rename',
    {
      schema: {
        operationId: 'renameService',
        summary: 'Rename a service',
        tags: ['services'],
        params: ofService,
        body: Ref(RenameBody),
        response: { 200: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await renameService(context, callerOf(request), request.service.key, request.body.name),
      ),
  );
}

// Replicas of a service, changes of its primary, and rehearsals.

export function highAvailabilityRoutes(api: App, context: ApiContext): void {
  api.post(
    '/projects/:project_id/services/:service_id/setHA',
    {
      schema: {
        operationId: 'setHA',
        summary: 'Set the number of standbys',
        description:
          'Missing fields stay unchanged. A synchronous standby has every write ' +
          'before it is acknowledged.',
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
          'A planned change: no acknowledged write is lost. Sessions end; ' +
          'new ones wait for a moment.',
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
          'Howdah writes meanwhile: the operation reports how long writes were not ' +
          'possible, and how many were lost.',
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

// Pooler and VPC of a service.

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
            'PgBouncer in front of the service, on its own port, which stays reserved. ' +
            'For a paused service it takes effect at the next start.',
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
          'From then on only clients of the VPC and of its peers can connect. ' +
          'The public endpoint stays reserved.',
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
