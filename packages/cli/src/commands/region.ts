import type { Command } from 'commander';
import { noun, verb, type Printing } from '../command.ts';
import { answered, connect } from '../connection.ts';
import { ofProject } from '../find.ts';
import { showList } from '../output.ts';
import { FINDING_VIEW, REGION_VIEW } from '../views.ts';

export function addRegion(program: Command): void {
  const region = noun(program, 'region', 'Show the regions, and what each offers.');

  verb(region, 'list', {
    does: 'List the regions with what each can run; json also gives the reasons for what it cannot.',
    example: 'howdah region list -o json',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    const connection = await connect();
    const regions = connection.client.GET('/projects/{project_id}/regions', {
      params: ofProject(connection),
    });
    await showList(output, await answered(regions), REGION_VIEW);
  });

  verb(region, 'doctor', {
    does: 'Show what howdah doctor finds on the machine of the control plane.',
    example: 'howdah region doctor',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    const { client } = await connect();
    await showList(output, await answered(client.GET('/doctor')), FINDING_VIEW);
  });
}
