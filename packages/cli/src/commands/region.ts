import type { Command } from 'commander';
import { noun, verb, type Printing } from '../command.ts';
import { answered, connect } from '../connection.ts';
import { ofProject } from '../find.ts';
import { showList } from '../output.ts';
import { FINDING_VIEW, REGION_VIEW } from '../views.ts';

export function addRegion(program: Command): void {
  const region = noun(program, 'region', 'See where services can be, and what can be had there.');

  verb(region, 'list', {
    does: 'List the regions, with what each can run; as json with the reasons for what it cannot.',
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
    does: 'What howdah doctor says of the machine that the control plane runs on, wherever that is.',
    example: 'howdah region doctor',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    const { client } = await connect();
    await showList(output, await answered(client.GET('/doctor')), FINDING_VIEW);
  });
}
