import type { Command } from 'commander';
import { noun, verb, type Changing, type Destroying, type Printing } from '../command.ts';
import { answered, connect, type Connection } from '../connection.ts';
import { findVpc, pathOfVpc } from '../find.ts';
import { Failure } from '../exit.ts';
import { note, show, showList } from '../output.ts';
import { confirmCall } from '../permission.ts';
import { PEERING_VIEW } from '../views.ts';

type CreateOptions = Changing & { peer: string; project?: string; region: string };

export function addPeering(program: Command): void {
  const peering = noun(
    program,
    'peering',
    'Create and manage peerings: pairs of VPCs that reach each other.',
  );
  const ofVpc = async (connection: Connection, vpc: string) =>
    pathOfVpc(connection, (await findVpc(connection, vpc)).id);
  const ofPeering = async (connection: Connection, vpc: string, id: string) => {
    const { path } = await ofVpc(connection, vpc);
    return { path: { ...path, peering_id: id } };
  };

  verb(peering, 'list <vpc>', {
    does: 'List the peerings of a VPC.',
    example: 'howdah peering list office',
    takes: ['output'],
  }).action(async (vpc: string, { output }: Printing) => {
    const connection = await connect();
    const params = await ofVpc(connection, vpc);
    await showList(
      output,
      await answered(
        connection.client.GET('/projects/{project_id}/vpcs/{vpc_id}/peerings', { params }),
      ),
      PEERING_VIEW,
    );
  });

  verb(peering, 'get <vpc> <peering>', {
    does: 'Show a peering.',
    example: 'howdah peering get office 2001',
    takes: ['output'],
  }).action(async (vpc: string, id: string, { output }: Printing) => {
    const connection = await connect();
    const params = await ofPeering(connection, vpc, id);
    const found = await answered(
      connection.client.GET('/projects/{project_id}/vpcs/{vpc_id}/peerings/{peering_id}', {
        params,
      }),
    );
    await show(output, found, PEERING_VIEW);
  });

  verb(peering, 'create <vpc>', {
    does:
      'Peer a VPC with another one. The owner of a VPC in another project must request the ' +
      'peering from the other side, too.',
    example: 'howdah peering create office --peer 1002',
    takes: ['output', 'dryRun'],
  })
    .requiredOption('--peer <id>', 'the id of the other VPC')
    .option('--project <id>', 'the project of the other VPC; default: the same')
    .option('--region <region>', 'the region of the other VPC', 'local')
    .action(async (vpc: string, { peer, project, region, ...options }: CreateOptions) => {
      const connection = await connect(options);
      const params = await ofVpc(connection, vpc);
      const body = {
        peer_account_id: project ?? connection.projectId,
        peer_region_code: region,
        peer_vpc_id: peer,
      };
      const made = await answered(
        connection.client.POST('/projects/{project_id}/vpcs/{vpc_id}/peerings', { params, body }),
      );
      await show(options.output, made, PEERING_VIEW);
      if (made.status === 'invalid')
        throw new Failure(
          `the peering ${made.id} reaches nothing: ` +
            `${made.error_message ?? 'no reason was given'}; ` +
            `remove it: howdah peering delete ${vpc} ${made.id}`,
          'conflict',
        );
      if (made.status === 'pending')
        note(
          `the owner of ${peer} has to ask for it too, with a key of the project ` +
            `${body.peer_account_id}: howdah peering create ${peer} --peer ${params.path.vpc_id} ` +
            `--project ${connection.projectId}`,
        );
    });

  verb(peering, 'delete <vpc> <peering>', {
    does:
      'Delete a peering, on both sides; connections through it end. ' +
      'Asks for confirmation on a terminal.',
    example: 'howdah peering delete office 2001',
    takes: ['dryRun', 'yes'],
  }).action(async (vpc: string, id: string, options: Destroying) => {
    const connection = await connect(options);
    const params = await ofPeering(connection, vpc, id);
    await confirmCall(
      connection,
      'deletePeering',
      `Delete the peering ${id} of ${vpc}, on both sides?`,
      options,
    );
    await connection.client.DELETE('/projects/{project_id}/vpcs/{vpc_id}/peerings/{peering_id}', {
      params,
    });
    note(`peering ${id} is deleted`);
  });
}
