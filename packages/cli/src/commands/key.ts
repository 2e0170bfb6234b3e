import { ROLE_SUMMARIES } from '@howdah/contract/permissions';
import { ROLES, type Role } from '@howdah/contract/types';
import { Option, type Command } from 'commander';
import {
  countOf,
  given,
  noun,
  verb,
  type Changing,
  type Destroying,
  type Printing,
} from '../command.ts';
import { answered, connect } from '../connection.ts';
import { find, findProject, keysOf } from '../find.ts';
import { momentIfGiven, secondsOf } from '../moment.ts';
import { note, say, show, showAs, showList } from '../output.ts';
import { confirmCall } from '../permission.ts';
import { KEY_VIEW } from '../views.ts';

type OfProject = { project?: string };
type CreateOptions = Changing &
  OfProject & {
    name: string;
    role: Role;
    expires?: string;
    dryRunOnly?: true;
    forkOnly?: true;
    ttl?: string;
    maxTtl?: string;
    autoSuspend?: string;
    maxServices?: string;
  };

/** The bounds of the services that the key makes. */
function boundsOf({ ttl, maxTtl, autoSuspend, maxServices }: CreateOptions) {
  const seconds = (flag: string, text: string | undefined): number | undefined =>
    text === undefined ? undefined : secondsOf(flag, text);
  return {
    ...given('service_ttl_seconds', seconds('--ttl', ttl)),
    ...given('max_service_ttl_seconds', seconds('--max-ttl', maxTtl)),
    ...given('service_auto_suspend_seconds', seconds('--auto-suspend', autoSuspend)),
    ...given(
      'max_services',
      maxServices === undefined ? undefined : countOf('--max-services', maxServices),
    ),
  };
}

export function addKey(program: Command): void {
  const key = noun(program, 'key', 'Create, show and revoke the keys of a project.');
  const OTHER_PROJECT = [
    '--project <project>',
    "id or name of another project than the key's own",
  ] as const;

  verb(key, 'list', {
    does: 'List the keys, including revoked and expired ones. Secrets are not shown again.',
    example: 'howdah key list --project team',
    takes: ['output'],
  })
    .option(...OTHER_PROJECT)
    .action(async ({ project, output }: Printing & OfProject) => {
      const connection = await connect();
      const keys = await keysOf(await findProject(connection, project)).list(connection);
      await showList(output, keys, KEY_VIEW);
    });

  verb(key, 'get <key>', { does: 'Show a key.', example: 'howdah key get ci', takes: ['output'] })
    .option(...OTHER_PROJECT)
    .action(async (wanted: string, { project, output }: Printing & OfProject) => {
      const connection = await connect();
      const projectId = await findProject(connection, project);
      const { public_key } = await find(connection, keysOf(projectId), wanted);
      const params = { path: { project_id: projectId, public_key } };
      await show(
        output,
        await answered(
          connection.client.GET('/projects/{project_id}/keys/{public_key}', { params }),
        ),
        KEY_VIEW,
      );
    });

  verb(key, 'create', {
    does: 'Create a key and print it. Its secret half is shown only once.',
    example: 'howdah key create --name ci --role developer --expires +90d',
    takes: ['output', 'dryRun'],
  })
    .requiredOption('--name <name>', 'who or what uses it: 1 to 128 characters')
    .addOption(
      new Option('--role <role>', ROLES.map((role) => `${role} ${ROLE_SUMMARIES[role]}`).join('; '))
        .choices(ROLES)
        .default('developer'),
    )
    .option('--expires <time>', 'when it expires: +90d or 2027-01-31T12:00:00Z; default: never')
    .option('--dry-run-only', 'the key makes dry runs only')
    .option('--fork-only', 'the key reads, forks, and changes only forks that it made')
    .option('--ttl <time>', 'services that it makes are deleted so long after that, such as 2h')
    .option('--max-ttl <time>', 'services that it makes end within so long, such as 1d')
    .option('--auto-suspend <time>', 'DEV services that it makes sleep after so long without use')
    .option('--max-services <number>', 'so many services that it made are there at a time')
    .option(...OTHER_PROJECT)
    .action(async (options: CreateOptions) => {
      const connection = await connect(options);
      const body = {
        name: options.name,
        role: options.role,
        ...given('expires_at', momentIfGiven('--expires', options.expires)),
        ...given('dry_run_only', options.dryRunOnly),
        ...given('fork_only', options.forkOnly),
        ...boundsOf(options),
      };
      const params = { path: { project_id: await findProject(connection, options.project) } };
      const made = await answered(
        connection.client.POST('/projects/{project_id}/keys', { params, body }),
      );
      await showAs(options.output, made, KEY_VIEW.noun, () => {
        say(`${made.role} key ${made.name}. It is shown only once:`);
        say(`  ${made.public_key}:${made.secret_key ?? ''}`);
      });
    });

  verb(key, 'revoke <key>', {
    does: 'Revoke a key. It is refused at once, everywhere. Asks for confirmation on a terminal.',
    example: 'howdah key revoke ci --yes',
    takes: ['dryRun', 'yes'],
  })
    .option(...OTHER_PROJECT)
    .action(async (wanted: string, { project, ...options }: Destroying & OfProject) => {
      const connection = await connect(options);
      const projectId = await findProject(connection, project);
      const { public_key, name } = await find(connection, keysOf(projectId), wanted);
      await confirmCall(
        connection,
        'revokeKey',
        `Revoke the key ${name} (${public_key})?`,
        options,
      );
      const params = { path: { project_id: projectId, public_key } };
      await connection.client.DELETE('/projects/{project_id}/keys/{public_key}', { params });
      note(`${public_key} is revoked`);
    });
}
