/** The calls of alerts: incidents, rules and destinations of a project. */
import type { Schemas } from '@howdah/client';
import { queryOptions } from '@tanstack/react-query';
import { body, client } from './api.ts';

export type Incident = Schemas['Incident'];
export type AlertRule = Schemas['AlertRule'];
export type Destination = Schemas['AlertDestination'];
export type NewDestination = Schemas['CreateAlertDestination'];

const ofProject = (project: string) => ({ path: { project_id: project } });

export const incidentsQuery = (project: string) =>
  queryOptions({
    queryKey: ['alerts', project, 'incidents'],
    queryFn: ({ signal }) =>
      body(
        client.GET('/projects/{project_id}/alerts/incidents', {
          params: { ...ofProject(project), query: { limit: '50' } },
          signal,
        }),
      ),
  });

export const alertRulesQuery = (project: string) =>
  queryOptions({
    queryKey: ['alerts', project, 'rules'],
    queryFn: ({ signal }) =>
      body(
        client.GET('/projects/{project_id}/alerts/rules', { params: ofProject(project), signal }),
      ),
  });

export const setAlertRule = (project: string, change: Schemas['SetAlertRule']) =>
  client.PATCH('/projects/{project_id}/alerts/rules', { params: ofProject(project), body: change });

export const destinationsQuery = (project: string) =>
  queryOptions({
    queryKey: ['alerts', project, 'destinations'],
    queryFn: ({ signal }) =>
      body(
        client.GET('/projects/{project_id}/alerts/destinations', {
          params: ofProject(project),
          signal,
        }),
      ),
  });

export async function createDestination(
  project: string,
  request: NewDestination,
): Promise<Destination> {
  const answer = await body(
    client.POST('/projects/{project_id}/alerts/destinations', {
      params: ofProject(project),
      body: request,
    }),
  );
  if (!('config' in answer)) throw new Error('nothing was created: this key is for dry runs only');
  return answer;
}

export function destinationCalls(project: string, id: string) {
  const params = { path: { project_id: project, destination_id: id } };
  return {
    delete: () =>
      client.DELETE('/projects/{project_id}/alerts/destinations/{destination_id}', { params }),
    test: async (): Promise<Schemas['WebhookTest']> => {
      const answer = await body(
        client.POST('/projects/{project_id}/alerts/destinations/{destination_id}/test', {
          params,
        }),
      );
      if (!('delivered' in answer))
        throw new Error('nothing was sent: this key is for dry runs only');
      return answer;
    },
  };
}
