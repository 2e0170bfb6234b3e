/** Extensions: what is installed, and what services have. */
import {
  EnableExtensionBody,
  InstalledExtensionsSchema,
  Ref,
  documented,
  REGION_CODE_PATTERN,
  ServiceExtensionSchema,
  ServiceSchema,
} from '@howdah/contract';
import { Type } from 'typebox';
import {
  disableExtension,
  enableExtension,
  listExtensions,
  listServiceExtensions,
} from '../../services/extensions.ts';
import type { ApiContext, App } from '../context.ts';
import { answer, callerOf } from '../changes.ts';
import { ofProject, ofService } from './schemas.ts';

const PATH = '/projects/:project_id/services/:service_id/extensions';

export function extensionRoutes(api: App, context: ApiContext): void {
  api.get(
    '/projects/:project_id/extensions',
    {
      schema: {
        operationId: 'listExtensions',
        summary: 'List the extensions that are installed',
        description:
          'Of each PostgreSQL of a region; the first is the one that new services get. ' +
          'An extension that is not allowed has the reason.',
        tags: ['services'],
        params: ofProject,
        querystring: Type.Object({
          region_code: Type.Optional(
            Type.String({
              maxLength: 64,
              ...documented({ pattern: REGION_CODE_PATTERN }),
              description: 'default: the first region',
            }),
          ),
        }),
        response: { 200: Type.Array(Ref(InstalledExtensionsSchema)) },
      },
    },
    async (request) => listExtensions(context, request.query.region_code),
  );

  api.get(
    PATH,
    {
      schema: {
        operationId: 'listServiceExtensions',
        summary: 'List the extensions that a service has or can have',
        tags: ['services'],
        params: ofService,
        response: { 200: Type.Array(Ref(ServiceExtensionSchema)) },
      },
    },
    async (request) => listServiceExtensions(context, request.service),
  );

  api.post(
    PATH,
    {
      schema: {
        operationId: 'enableExtension',
        summary: 'Enable an extension',
        description:
          'It is created in the database. Where PostgreSQL must load its library at the start, ' +
          'the service restarts first.',
        tags: ['services'],
        params: ofService,
        body: Ref(EnableExtensionBody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await enableExtension(context, callerOf(request), request.service, request.body.name),
      ),
  );

  api.delete(
    `${PATH}/:extension_name`,
    {
      schema: {
        operationId: 'disableExtension',
        summary: 'Disable an extension',
        description:
          'It is dropped, which fails while anything depends on it. ' +
          'If its library was loaded at the start, the service restarts.',
        tags: ['services'],
        params: Type.Object({ ...ofService.properties, extension_name: Type.String() }),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await disableExtension(
          context,
          callerOf(request),
          request.service,
          request.params.extension_name,
        ),
      ),
  );
}
