import { PROJECT_LIMITS } from '@howdah/contract/values';
import type { Schemas } from '@howdah/client';
import type { Command } from 'commander';
import { countOf, given, noun, verb, type Changing, type Printing } from '../command.ts';
import { answered, connect } from '../connection.ts';
import { findProject } from '../find.ts';
import { note, show, showChanged, showList } from '../output.ts';
import { PROJECT_DETAIL_VIEW, PROJECT_VIEW } from '../views.ts';

type Limits = Schemas['ProjectLimits'];
type LimitOptions = {
  services?: string;
  replicaSets?: string;
  cpuMillis?: string;
  memoryGbs?: string;
  backupRetentionDays?: string;
};

export function addProject(program: Command): void {
  const project = noun(
    program,
    'project',
    'Create projects and set their limits. All commands but get ' +
      'and rename need the key that howdah up created.',
  );

  verb(project, 'list', {
    does: 'List the projects that the key reaches.',
    example: 'howdah project list --all',
    takes: ['output'],
  })
    .option('--all', 'every project')
    .action(async ({ output, all }: Printing & { all?: true }) => {
      const { client } = await connect();
      const query = given('all', all === true ? 'true' : undefined);
      await showList(
        output,
        await answered(client.GET('/projects', { params: { query } })),
        PROJECT_VIEW,
      );
    });

  verb(project, 'get [project]', {
    does: "Show the limits and the usage of a project; default: the key's own project.",
    example: 'howdah project get team',
    takes: ['output'],
  }).action(async (wanted: string | undefined, { output }: Printing) => {
    const connection = await connect();
    const params = { path: { project_id: await findProject(connection, wanted) } };
    await show(
      output,
      await answered(connection.client.GET('/projects/{project_id}', { params })),
      PROJECT_DETAIL_VIEW,
    );
  });

  withLimits(
    verb(project, 'create', {
      does: 'Create a project. howdah key create --project creates its first key.',
      example: 'howdah project create --name team --services 10',
      takes: ['output', 'dryRun'],
    }).requiredOption('--name <name>', '1 to 128 characters'),
  ).action(async (options: Changing & LimitOptions & { name: string }) => {
    const body = { name: options.name, limits: limitsOf(options) };
    const { client } = await connect(options);
    const made = await answered(client.POST('/projects', { body }));
    await show(options.output, made, PROJECT_DETAIL_VIEW);
    note(`its first key: howdah key create --project ${made.id} --role admin --name first`);
  });

  withLimits(
    verb(project, 'limits <project>', {
      does: 'Set the limits of a project.',
      example: 'howdah project limits team --services 20 --memory-gbs none',
      takes: ['output', 'dryRun'],
    }),
  ).action(async (wanted: string, options: Changing & LimitOptions) => {
    const body = limitsOf(options);
    const connection = await connect(options);
    const params = { path: { project_id: await findProject(connection, wanted) } };
    const set = await answered(
      connection.client.POST('/projects/{project_id}/setLimits', { params, body }),
    );
    await showChanged(options.output, set, PROJECT_DETAIL_VIEW, () =>
      answered(connection.client.GET('/projects/{project_id}', { params })),
    );
  });

  verb(project, 'rename <project> <new-name>', {
    does: 'Rename a project.',
    example: 'howdah project rename team shop',
    takes: ['output', 'dryRun'],
  }).action(async (wanted: string, name: string, options: Changing) => {
    const connection = await connect(options);
    const params = { path: { project_id: await findProject(connection, wanted) } };
    const renamed = await answered(
      connection.client.POST('/projects/{project_id}/rename', { params, body: { name } }),
    );
    await showChanged(options.output, renamed, PROJECT_DETAIL_VIEW, () =>
      answered(connection.client.GET('/projects/{project_id}', { params })),
    );
  });
}

function withLimits(command: Command): Command {
  return command
    .option('--services <number>', 'maximum number of services; none: no limit')
    .option('--replica-sets <number>', 'maximum number of read replica sets; none: no limit')
    .option(
      '--cpu-millis <number>',
      'thousandths of a core of all services together; none: no limit',
    )
    .option('--memory-gbs <number>', 'gigabytes of all services together; none: no limit')
    .option(
      '--backup-retention-days <number>',
      'longest backup retention that services may get; none: 180 days',
    );
}

function limitsOf(options: LimitOptions): Limits {
  const { services, replicaSets, cpuMillis, memoryGbs, backupRetentionDays } = options;
  const texts = {
    services,
    replica_sets: replicaSets,
    cpu_millis: cpuMillis,
    memory_gbs: memoryGbs,
    backup_retention_days: backupRetentionDays,
  };
  const limits: Limits = {};
  for (const limit of [...PROJECT_LIMITS, 'backup_retention_days'] as const) {
    const text = texts[limit];
    if (text !== undefined)
      limits[limit] = text === 'none' ? null : countOf(`--${limit.replaceAll('_', '-')}`, text);
  }
  return limits;
}
