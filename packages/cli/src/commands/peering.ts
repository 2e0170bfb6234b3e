import type { Schemas } from '@howdah/client';
import { quotedWord } from '@howdah/contract/shell';
import type { Command } from 'commander';
import { noun, verb, type Changing, type Destroying, type Printing } from '../command.ts';
import { answered, connect, type Connection } from '../connection.ts';
import { Failure } from '../exit.ts';
import { find, findVpc, pathOfVpc, peeringsOf } from '../find.ts';
import { peerNames } from '../names.ts';
import { note, show, showList } from '../output.ts';
import { confirmCall } from '../permission.ts';
import { peeringView } from '../views.ts';

type Peering = Schemas['Peering'];
type CreateOptions = Changing & { peer: string; project?: string; region: string };

export function addPeering(program: Command): void {
  const peering = noun(
    program,
    'peering',
    'Create and manage peerings: pairs of VPCs that reach each other.',
  );
  addReading(peering);
  addCreate(peering);

  verb(peering, 'delete <vpc> <peering>', {
    does:
      'Delete a peering, on both sides; connections through it end. ' +
      'Asks for confirmation on a terminal.',
    example: 'howdah peering delete office warehouse',
    takes: ['dryRun', 'yes'],
  }).action(async (vpc: string, wanted: string, options: Destroying) => {
    const connection = await connect(options);
    const { path, name } = await findPeering(connection, vpc, wanted);
    const which = `peering of ${vpc} with ${name}`;
    await confirmCall(connection, 'deletePeering', `Delete the ${which}, on both sides?`, options);
    await connection.client.DELETE('/projects/{project_id}/vpcs/{vpc_id}/peerings/{peering_id}', {
      params: { path },
    });
    note(`the ${which} is deleted`);
  });
}

function addReading(peering: Command): void {
  verb(peering, 'list <vpc>', {
    does: 'List the peerings of a VPC.',
    example: 'howdah peering list office',
    takes: ['output'],
  }).action(async (vpc: string, { output }: Printing) => {
    const connection = await connect();
    const name = await peerNames(connection, output);
    const kind = peeringsOf(vpc, await pathOf(connection, vpc), name);
    await showList(output, await kind.list(connection), peeringView(name));
  });

  verb(peering, 'get <vpc> <peering>', {
    does: 'Show a peering.',
    example: 'howdah peering get office warehouse',
    takes: ['output'],
  }).action(async (vpc: string, wanted: string, { output }: Printing) => {
    const connection = await connect();
    const { path, name } = await findPeering(connection, vpc, wanted);
    const found = await answered(
      connection.client.GET('/projects/{project_id}/vpcs/{vpc_id}/peerings/{peering_id}', {
        params: { path },
      }),
    );
    await show(
      output,
      found,
      peeringView(() => name),
    );
  });
}

function addCreate(peering: Command): void {
  verb(peering, 'create <vpc>', {
    does:
      'Peer a VPC with another one. The owner of a VPC in another project must request the ' +
      'peering from the other side, too.',
    example: 'howdah peering create office --peer warehouse',
    takes: ['output', 'dryRun'],
  })
    .requiredOption('--peer <vpc>', 'the other VPC, by its id or name; in another project its id')
    .option('--project <id>', 'the project of the other VPC; default: the same')
    .option('--region <region>', 'the region of the other VPC', 'local')
    .action(async (vpc: string, { peer, project, region, ...options }: CreateOptions) => {
      const connection = await connect(options);
      const { projectId } = connection;
      const path = await pathOf(connection, vpc);
      const isOwn = project === undefined || project === projectId;
      const body = {
        peer_account_id: project ?? projectId,
        peer_region_code: region,
        peer_vpc_id: isOwn ? (await findVpc(connection, peer)).id : peer,
      };
      const made = await answered(
        connection.client.POST('/projects/{project_id}/vpcs/{vpc_id}/peerings', {
          params: { path },
          body,
        }),
      );
      const name = await peerNames(connection, 'table');
      await show(options.output, made, peeringView(name));
      reportUnfinished(vpc, made, name(made), { ownVpc: path.vpc_id, projectId });
    });
}

/** Says what the owner of the other VPC has to do. @throws Failure if the peering is invalid */
function reportUnfinished(
  vpc: string,
  made: Peering,
  name: string,
  { ownVpc, projectId }: { ownVpc: string; projectId: string },
): void {
  if (made.status === 'invalid')
    throw new Failure(
      `the peering with ${name} reaches nothing: ` +
        `${made.error_message ?? 'no reason was given'}; ` +
        `remove it: howdah peering delete ${quotedWord(vpc)} ${quotedWord(name)}`,
      'conflict',
    );
  if (made.status === 'pending')
    note(
      `the owner of ${name} has to ask for it too, with a key of the project ` +
        `${made.peer_account_id}: howdah peering create ${made.peer_vpc_id} --peer ${ownVpc} ` +
        `--project ${projectId}`,
    );
}

/** The path of the VPC with this id or name. */
async function pathOf(connection: Connection, vpc: string) {
  return pathOfVpc(connection, (await findVpc(connection, vpc)).id).path;
}

/**
 * The path of a peering, by its id or the name of the other VPC, and that name.
 *
 * @throws Failure as `pick`
 */
async function findPeering(connection: Connection, vpc: string, wanted: string) {
  const path = await pathOf(connection, vpc);
  const peerName = await peerNames(connection, 'table');
  const found = await find(connection, peeringsOf(vpc, path, peerName), wanted);
  return { path: { ...path, peering_id: found.id }, name: peerName(found) };
}
