import { EXPORTER_TYPES, type ExporterType } from '@howdah/contract/values';
import { Option, type Command } from 'commander';
import { given, noun, verb, type Changing, type Destroying, type Printing } from '../command.ts';
import { readSecret } from '../confirm.ts';
import { answered, connect, type Connection } from '../connection.ts';
import { EXPORTERS, find, ofProject } from '../find.ts';
import { note, show, showList } from '../output.ts';
import { confirmCall } from '../permission.ts';
import { EXPORTER_VIEW } from '../views.ts';

/** Options that say which secret there is. Its value is read, so that no process list shows it. */
type Config = { url?: string; username?: string; bearer?: true; header?: string };

export function addExporter(program: Command): void {
  const exporter = noun(
    program,
    'exporter',
    'Send the metrics of services to Prometheus or an OTLP receiver, or have them scraped.',
  );
  addReading(exporter);
  addChanging(exporter);

  verb(exporter, 'delete <exporter>', {
    does: 'Delete an exporter that no service has. Asks for confirmation on a terminal.',
    example: 'howdah exporter delete grafana',
    takes: ['dryRun', 'yes'],
  }).action(async (wanted: string, options: Destroying) => {
    const connection = await connect(options);
    const { exporter_id: id, name } = await find(connection, EXPORTERS, wanted);
    await confirmCall(
      connection,
      'deleteExporter',
      `Delete the exporter ${name} (${id})?`,
      options,
    );
    await connection.client.DELETE('/projects/{project_id}/exporters/{exporter_id}', {
      params: pathOf(connection, id),
    });
    note(`exporter ${name} is deleted`);
  });
}

function addReading(exporter: Command): void {
  verb(exporter, 'list', {
    does: 'List the exporters.',
    example: 'howdah exporter list',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    await showList(output, await EXPORTERS.list(await connect()), EXPORTER_VIEW);
  });

  verb(exporter, 'get <exporter>', {
    does: 'Show an exporter: where it sends to, and whether that works.',
    example: 'howdah exporter get grafana',
    takes: ['output'],
  }).action(async (wanted: string, { output }: Printing) => {
    const connection = await connect();
    const { exporter_id: id } = await find(connection, EXPORTERS, wanted);
    const found = await answered(
      connection.client.GET('/projects/{project_id}/exporters/{exporter_id}', {
        params: pathOf(connection, id),
      }),
    );
    await show(output, found, EXPORTER_VIEW);
  });
}

function addChanging(exporter: Command): void {
  const SECRET = 'Its secret is typed at a prompt, or is the first line of standard input.';
  const configurable = (command: Command): Command =>
    command
      .option('--url <url>', 'where samples are pushed to: http or https')
      .option('--username <name>', 'a username; the secret is its password')
      .option('--bearer', 'the secret is a token, in place of a username')
      .option('--header <header>', 'OTLP_METRICS: a header; the secret is its value');

  configurable(
    verb(exporter, 'create', {
      does: `Create an exporter. ${SECRET}`,
      example:
        'howdah exporter create --name otel --type OTLP_METRICS --url ' +
        'https://example.com/v1/metrics',
      takes: ['output', 'dryRun'],
    })
      .requiredOption('--name <name>', '1 to 128 characters')
      .addOption(
        new Option('--type <type>', 'what it is').choices(EXPORTER_TYPES).makeOptionMandatory(),
      )
      .option('--region <region>', 'of its services', 'local'),
  ).action(
    async ({
      name,
      type,
      region,
      ...options
    }: Changing & Config & { name: string; type: ExporterType; region: string }) => {
      const connection = await connect(options);
      const body = { name, type, region_code: region, config: await configOf(options) };
      const made = await answered(
        connection.client.POST('/projects/{project_id}/exporters', {
          params: ofProject(connection),
          body,
        }),
      );
      await show(options.output, made, EXPORTER_VIEW);
    },
  );

  configurable(
    verb(exporter, 'change <exporter>', {
      does: `Change an exporter. ${SECRET}`,
      example: 'howdah exporter change grafana --name prometheus',
      takes: ['output', 'dryRun'],
    }).option('--name <name>', '1 to 128 characters'),
  ).action(async (wanted: string, { name, ...options }: Changing & Config & { name?: string }) => {
    const connection = await connect(options);
    const { exporter_id: id } = await find(connection, EXPORTERS, wanted);
    const config = await configOf(options);
    const body = {
      ...given('name', name),
      ...given('config', Object.keys(config).length === 0 ? undefined : config),
    };
    const changed = await answered(
      connection.client.PATCH('/projects/{project_id}/exporters/{exporter_id}', {
        params: pathOf(connection, id),
        body,
      }),
    );
    await show(options.output, changed, EXPORTER_VIEW);
  });
}

async function configOf({ url, username, bearer, header }: Config) {
  return {
    ...given('url', url),
    ...given('username', username),
    ...(username === undefined ? {} : { password: await readSecret(`password of ${username}: `) }),
    ...(bearer === undefined ? {} : { bearer_token: await readSecret('token: ') }),
    ...(header === undefined
      ? {}
      : { headers: { [header]: await readSecret(`value of ${header}: `) } }),
  };
}

const pathOf = (connection: Connection, id: string) => ({
  path: { project_id: connection.projectId, exporter_id: id },
});
