import { ProjectSchema, Ref, RegionSchema } from '@howdah/contract';
import { Type } from 'typebox';
import { describeRegion } from '../../services/regions.ts';
import type { ApiContext, App } from '../app.ts';

export function projectRoutes(api: App, { region }: ApiContext): void {
  api.get(
    '/projects',
    {
      schema: {
        operationId: 'listProjects',
        summary: 'List the projects that the key reaches',
        tags: ['projects'],
        response: { 200: Type.Array(Ref(ProjectSchema)) },
      },
    },
    async ({ key }) => [{ id: key.project_id, name: key.project_name }],
  );

  api.get(
    '/projects/:project_id/regions',
    {
      schema: {
        operationId: 'listRegions',
        summary: 'List the regions with what they can run',
        tags: ['projects'],
        params: Type.Object({ project_id: Type.String() }),
        response: { 200: Type.Array(Ref(RegionSchema)) },
      },
    },
    async () => [describeRegion(region)],
  );
}
