/** Alerts: destinations, rules and incidents of a project. */
import {
  AlertRuleSchema,
  CreateDestinationBody,
  DestinationSchema,
  INCIDENT_STATUSES,
  IncidentSchema,
  Ref,
  SetAlertRuleBody,
  StringEnum,
  UpdateDestinationBody,
  WebhookTestSchema,
} from '@howdah/contract';
import { Type } from 'typebox';
import {
  destinationDocument,
  incidentDocument,
  ruleDocuments,
} from '../../domain/alerts/document.ts';
import {
  createDestination,
  deleteDestination,
  findDestinationOrRefuse,
  setAlertRule,
  testDestination,
  updateDestination,
} from '../../services/alerts.ts';
import { listDestinations, listIncidents, readRules } from '../../store/alerts.ts';
import { answer, callerOf } from '../change-requests.ts';
import type { ApiContext, App } from '../context.ts';
import { pageOf, paging, sendList } from '../paging.ts';
import { ofProject, resourceSchemas } from './schemas.ts';

const ALERTS = '/projects/:project_id/alerts';
const DESTINATIONS = `${ALERTS}/destinations`;
const DESTINATION = `${DESTINATIONS}/:destination_id`;
const ofDestination = Type.Object({ project_id: Type.String(), destination_id: Type.String() });
const destinations = resourceSchemas({
  tag: 'alerts',
  ofMany: ofProject,
  ofOne: ofDestination,
  document: DestinationSchema,
});

export function alertRoutes(api: App, context: ApiContext): void {
  destinationRoutes(api, context);
  ruleRoutes(api, context);
  incidentRoutes(api, context);
}

function destinationRoutes(api: App, context: ApiContext): void {
  const { store } = context;
  api.get(
    DESTINATIONS,
    destinations.list('listAlertDestinations', 'List the destinations of alerts, oldest first'),
    async (request) =>
      (await listDestinations(store.db, request.key.project_id)).map(destinationDocument),
  );

  api.get(
    DESTINATION,
    destinations.get('getAlertDestination', 'Get a destination of alerts'),
    async (request) => {
      const { destination_id: id } = request.params;
      return destinationDocument(
        await findDestinationOrRefuse(store.db, request.key.project_id, id),
      );
    },
  );

  api.post(
    DESTINATIONS,
    destinations.create(
      CreateDestinationBody,
      'createAlertDestination',
      'Have alerts sent by mail, to Slack, Teams or PagerDuty, or to a URL',
      'A destination gets one message when an incident opens, and one when it is resolved. ' +
        'A message that is not accepted is repeated for six hours. No answer shows secrets, ' +
        'but this one for the type webhook: its messages are signed as in Standard Webhooks.',
    ),
    async (request, reply) =>
      answer(reply, await createDestination(context, callerOf(request), request.body)),
  );

  api.patch(
    DESTINATION,
    destinations.update(
      UpdateDestinationBody,
      'updateAlertDestination',
      'Change a destination of alerts',
      'Secrets that are left out stay as they are, unless the host or the URL changes.',
    ),
    async (request, reply) => {
      const { destination_id: id } = request.params;
      return answer(reply, await updateDestination(context, callerOf(request), id, request.body));
    },
  );

  api.delete(
    DESTINATION,
    destinations.delete('deleteAlertDestination', 'Delete a destination of alerts'),
    async (request, reply) =>
      answer(
        reply,
        await deleteDestination(context, callerOf(request), request.params.destination_id),
      ),
  );

  api.post(
    `${DESTINATION}/test`,
    {
      schema: {
        operationId: 'testAlertDestination',
        summary: 'Send a test message now, once',
        tags: ['alerts'],
        params: ofDestination,
        response: { 200: Ref(WebhookTestSchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await testDestination(context, callerOf(request), request.params.destination_id),
      ),
  );
}

function ruleRoutes(api: App, context: ApiContext): void {
  api.get(
    `${ALERTS}/rules`,
    {
      schema: {
        operationId: 'listAlertRules',
        summary: 'List the rules of alerts, as they are set in the project',
        tags: ['alerts'],
        params: ofProject,
        response: { 200: Type.Array(Ref(AlertRuleSchema)) },
      },
    },
    async (request) => ruleDocuments(await readRules(context.store.db, request.key.project_id)),
  );

  api.patch(
    `${ALERTS}/rules`,
    {
      schema: {
        operationId: 'setAlertRule',
        summary: 'Set a rule of alerts for the project',
        description: 'Fields that are left out stay as they are; null sets a default again.',
        tags: ['alerts'],
        params: ofProject,
        body: Ref(SetAlertRuleBody),
        response: { 200: Ref(AlertRuleSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await setAlertRule(context, callerOf(request), request.body)),
  );
}

function incidentRoutes(api: App, { store }: ApiContext): void {
  api.get(
    `${ALERTS}/incidents`,
    {
      schema: {
        operationId: 'listIncidents',
        summary: 'List incidents, newest first',
        description: 'Open ones, and those that were resolved within the last 90 days.',
        tags: ['alerts'],
        params: ofProject,
        querystring: Type.Object({
          ...paging('number'),
          status: Type.Optional(StringEnum(INCIDENT_STATUSES)),
        }),
        response: { 200: Type.Array(Ref(IncidentSchema)) },
      },
    },
    async (request, reply) => {
      const { status } = request.query;
      return sendList(request, reply, 'number', async (after, limit) =>
        pageOf(
          await listIncidents(store.db, request.key.project_id, status, after, limit + 1),
          limit,
          incidentDocument,
          (row) => row.id,
        ),
      );
    },
  );
}
