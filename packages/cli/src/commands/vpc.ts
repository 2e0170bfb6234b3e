import type { Command } from 'commander';
import { noun, verb, type Changing, type Destroying, type Printing } from '../command.ts';
import { answered, connect } from '../connection.ts';
import { findVpc, ofProject, pathOfVpc, readVpc, VPCS } from '../find.ts';
import { note, show, showChanged, showList } from '../output.ts';
import { confirmCall } from '../permission.ts';
import { VPC_VIEW } from '../views.ts';

export function addVpc(program: Command): void {
  const vpc = noun(
    program,
    'vpc',
    'Create and manage VPCs: private networks whose services only their own clients can reach.',
  );

  verb(vpc, 'list', {
    does: 'List the VPCs.',
    example: 'howdah vpc list',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    await showList(output, await VPCS.list(await connect()), VPC_VIEW);
  });

  verb(vpc, 'get <vpc>', {
    does: 'Show a VPC.',
    example: 'howdah vpc get office',
    takes: ['output'],
  }).action(async (name: string, { output }: Printing) =>
    show(output, await findVpc(await connect(), name), VPC_VIEW),
  );

  verb(vpc, 'create', {
    does: 'Create a VPC.',
    example: 'howdah vpc create --name office --cidr 10.1.0.0/16',
    takes: ['output', 'dryRun'],
  })
    .requiredOption('--name <name>', '1 to 128 characters')
    .requiredOption('--cidr <network>', 'private IPv4 addresses, /16 to /28, like 10.1.0.0/16')
    .option('--region <region>', 'where', 'local')
    .action(
      async ({
        name,
        cidr,
        region,
        ...options
      }: Changing & { name: string; cidr: string; region: string }) => {
        const connection = await connect(options);
        const body = { name, cidr, region_code: region };
        const made = await answered(
          connection.client.POST('/projects/{project_id}/vpcs', {
            params: ofProject(connection),
            body,
          }),
        );
        await show(options.output, made, VPC_VIEW);
      },
    );

  verb(vpc, 'rename <vpc> <new-name>', {
    does: 'Rename a VPC.',
    example: 'howdah vpc rename office warehouse',
    takes: ['output', 'dryRun'],
  }).action(async (wanted: string, name: string, options: Changing) => {
    const connection = await connect(options);
    const { id } = await findVpc(connection, wanted);
    const params = pathOfVpc(connection, id);
    const renamed = await answered(
      connection.client.POST('/projects/{project_id}/vpcs/{vpc_id}/rename', {
        params,
        body: { name },
      }),
    );
    await showChanged(options.output, renamed, VPC_VIEW, () => readVpc(connection, id));
  });

  verb(vpc, 'delete <vpc>', {
    does: 'Delete a VPC that has no services and no peerings. Asks for confirmation on a terminal.',
    example: 'howdah vpc delete office',
    takes: ['dryRun', 'yes'],
  }).action(async (wanted: string, options: Destroying) => {
    const connection = await connect(options);
    const { id, name } = await findVpc(connection, wanted);
    await confirmCall(connection, 'deleteVpc', `Delete the VPC ${name} (${id})?`, options);
    await connection.client.DELETE('/projects/{project_id}/vpcs/{vpc_id}', {
      params: pathOfVpc(connection, id),
    });
    note(`VPC ${name} is deleted`);
  });
}
