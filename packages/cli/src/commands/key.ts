import { ROLE_SUMMARIES } from '@howdah/contract/permissions';
import { Option, type Command } from 'commander';
import { given, noun, verb, type Changing, type Destroying, type Printing } from '../command.ts';
import { confirm } from '../confirm.ts';
import { answered, connect } from '../connection.ts';
import { findKey, findProject } from '../find.ts';
import { momentIfGiven } from '../moment.ts';
import { note, say, show, showAs, showList } from '../output.ts';
import { KEY_VIEW } from '../views.ts';

const ROLES = ['admin', 'developer', 'viewer'] as const;

type OfProject = { project?: string };
type CreateOptions = Changing &
  OfProject & {
    name: string;
    role: (typeof ROLES)[number];
    expires?: string;
    dryRunOnly?: true;
    forkOnly?: true;
  };

export function addKey(program: Command): void {
  const key = noun(program, 'key', 'Make, show and revoke the keys of a project.');
  const OTHER_PROJECT = [
    '--project <project>',
    "another than the key's own, by its id or name",
  ] as const;

  verb(key, 'list', {
    does: 'Show the keys, revoked and expired ones too. Secrets are never shown again.',
    example: 'howdah key list --project team',
    takes: ['output'],
  })
    .option(...OTHER_PROJECT)
    .action(async ({ project, output }: Printing & OfProject) => {
      const connection = await connect();
      const params = { path: { project_id: await findProject(connection, project) } };
      await showList(
        output,
        await answered(connection.client.GET('/projects/{project_id}/keys', { params })),
        KEY_VIEW,
      );
    });

  verb(key, 'get <key>', { does: 'Show a key.', example: 'howdah key get ci', takes: ['output'] })
    .option(...OTHER_PROJECT)
    .action(async (wanted: string, { project, output }: Printing & OfProject) => {
      const connection = await connect();
      const projectId = await findProject(connection, project);
      const { public_key } = await findKey(connection, projectId, wanted);
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
    does: 'Make a key and print it. Its secret half is shown once, here.',
    example: 'howdah key create --name ci --role developer --expires +90d',
    takes: ['output', 'dryRun'],
  })
    .requiredOption('--name <name>', '1 to 128 characters: whose it is')
    .addOption(
      new Option('--role <role>', ROLES.map((role) => `${role} ${ROLE_SUMMARIES[role]}`).join('; '))
        .choices(ROLES)
        .default('developer'),
    )
    .option(
      '--expires <time>',
      'refused from then on: +90d or 2027-01-31T12:00:00Z; default: never',
    )
    .option('--dry-run-only', 'it may only ask what would be done')
    .option('--fork-only', 'it reads, forks, and changes nothing but forks that it made')
    .option(...OTHER_PROJECT)
    .action(async (options: CreateOptions) => {
      const connection = await connect(options);
      const body = {
        name: options.name,
        role: options.role,
        ...given('expires_at', momentIfGiven('--expires', options.expires)),
        ...given('dry_run_only', options.dryRunOnly),
        ...given('fork_only', options.forkOnly),
      };
      const params = { path: { project_id: await findProject(connection, options.project) } };
      const made = await answered(
        connection.client.POST('/projects/{project_id}/keys', { params, body }),
      );
      await showAs(options.output, made, KEY_VIEW.noun, () => {
        say(`${made.role} key ${made.name}. It is shown once, here:`);
        say(`  ${made.public_key}:${made.secret_key ?? ''}`);
      });
    });

  verb(key, 'revoke <key>', {
    does: 'Revoke a key, at once and everywhere. Asks first, on a terminal.',
    example: 'howdah key revoke ci --yes',
    takes: ['dryRun', 'yes'],
  })
    .option(...OTHER_PROJECT)
    .action(async (wanted: string, { project, ...options }: Destroying & OfProject) => {
      const connection = await connect(options);
      const projectId = await findProject(connection, project);
      const { public_key, name } = await findKey(connection, projectId, wanted);
      await confirm(`Revoke the key ${name} (${public_key})?`, options);
      const params = { path: { project_id: projectId, public_key } };
      await connection.client.DELETE('/projects/{project_id}/keys/{public_key}', { params });
      note(`${public_key} is revoked`);
    });
}
