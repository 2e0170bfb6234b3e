import { Type } from 'typebox';
import { body, findService, pathOf, type Cloud } from '../cloud.ts';
import {
  addTool,
  askedAs,
  changing,
  closed,
  confirm,
  service,
  wait,
  type ToolServer,
} from '../tool.ts';
import { change, findToEnd, SERVICE } from './change.ts';

export function addBackupTools(server: ToolServer, cloud: Cloud): void {
  const { client } = cloud;

  addTool(
    server,
    'list_backups',
    {
      title: 'Snapshots and restore window',
      description:
        'Snapshots, newest first, the window that fork_service with PITR can reach, ' +
        'and when a backup was last verified. Free.',
      kind: 'read',
      input: Type.Object({ service }, closed),
    },
    async (args) => {
      const found = await findService(cloud, args.service);
      const backups = body(
        await client.GET('/projects/{project_id}/services/{service_id}/backupStatus', {
          params: { path: pathOf(found) },
        }),
      );
      const { window, snapshots } = backups;
      const but = (window.gaps ?? [])
        .map(({ after, before }) => `, but nothing between ${after} and ${before}`)
        .join('');
      return {
        summary:
          `${snapshots.length} snapshots; ` +
          `fork_service with PITR reaches ${window.earliest ?? 'nothing yet'} to ` +
          `${window.latest ?? 'nothing yet'}${but}.`,
        data: { ...backups },
      };
    },
  );

  addTool(
    server,
    'verify_backup',
    {
      title: 'Verify the newest backup',
      description:
        'Restores the newest snapshot beside the service, checks it and removes it. Cost: ' +
        'seconds to minutes of disk and processor time, depending on the size of the data; ' +
        'the service keeps running. Howdah does this once a day: ' +
        'look at list_backups first. Follow it with wait_for_operation.',
      kind: 'change',
      input: Type.Object({ service, ...changing }, closed),
    },
    async (args, signal) => {
      const found = await findService(cloud, args.service);
      const { response } = await client.POST(
        '/projects/{project_id}/services/{service_id}/backups/verify',
        {
          params: { path: pathOf(found), ...askedAs(args) },
          signal,
        },
      );
      const operation_id = response.headers.get('Operation-Id');
      return {
        summary:
          `The backup of ${found.name} is being verified: ` +
          `wait_for_operation ${operation_id ?? ''}.`,
        data: { operation_id },
      };
    },
  );
  addRecoverService(server, cloud);
}

function addRecoverService(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'recover_service',
    {
      title: 'Restore lost data in its place',
      description:
        'Restores the lost or damaged data of a service that is UNSTABLE or paused, from its ' +
        'newest backup and the WAL after it. Id, endpoint and password stay; its present data is ' +
        'set aside for a while. With dry_run it says up to which moment. Needs an admin key. Ask ' +
        'the user first.',
      kind: 'destroy',
      input: Type.Object({ service, confirm, ...wait, ...changing }, closed),
    },
    async (args, signal) => {
      const found = await findToEnd(cloud, 'recover', args);
      return change(cloud, found, args, signal, 'READY', (asked) =>
        cloud.client.POST(`${SERVICE}/recover`, { ...asked, body: { confirm: found.name } }),
      );
    },
  );
}
