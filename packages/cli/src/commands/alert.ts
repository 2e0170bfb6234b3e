import { ALERT_RULE_NAMES, type AlertRuleName } from '@howdah/contract/alerts';
import {
  DESTINATION_TYPES,
  INCIDENT_STATUSES,
  SMTP_ENCRYPTIONS,
  type DestinationType,
  type IncidentStatus,
  type SmtpEncryption,
} from '@howdah/contract/values';
import { Option, type Command } from 'commander';
import { ALERT_RULE_VIEW, DESTINATION_VIEW, INCIDENT_VIEW } from '../alert-views.ts';
import {
  countOf,
  given,
  noun,
  oneOf,
  verb,
  type Changing,
  type Destroying,
  type Listing,
  type Printing,
} from '../command.ts';
import { readSecret } from '../confirm.ts';
import { answered, connect, type Connection } from '../connection.ts';
import { Failure } from '../exit.ts';
import { DESTINATIONS, find, ofProject } from '../find.ts';
import { duration, note, say, show, showAs, showList } from '../output.ts';
import { firstOf } from '../pages.ts';
import { confirmCall } from '../permission.ts';

export function addAlert(program: Command): void {
  const alert = noun(
    program,
    'alert',
    'Have incidents reported by mail, to Slack, Teams or PagerDuty, or to a URL.',
  );
  addIncidents(alert);
  addRules(alert);
  const destination = noun(alert, 'destination', 'Where alerts are sent.');
  addDestinationReading(destination);
  addDestinationChanging(destination);
}

function addIncidents(alert: Command): void {
  verb(alert, 'list', {
    does: 'List the incidents, newest first.',
    example: 'howdah alert list --status open',
    takes: ['output', 'limit'],
  })
    .addOption(
      new Option('--status <status>', 'only those with this status').choices(INCIDENT_STATUSES),
    )
    .action(async ({ status, limit, output }: Listing & { status?: IncidentStatus }) => {
      const connection = await connect();
      const incidents = await firstOf(limit, (page) =>
        connection.client.GET('/projects/{project_id}/alerts/incidents', {
          params: { ...ofProject(connection), query: { ...given('status', status), ...page } },
        }),
      );
      await showList(output, incidents, INCIDENT_VIEW);
    });
}

function addRules(alert: Command): void {
  verb(alert, 'rules', {
    does: 'List the rules, as they are set in the project.',
    example: 'howdah alert rules',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    const connection = await connect();
    const rules = await answered(
      connection.client.GET('/projects/{project_id}/alerts/rules', {
        params: ofProject(connection),
      }),
    );
    await showList(output, rules, ALERT_RULE_VIEW);
  });

  verb(alert, 'set <rule>', {
    does: 'Set a rule for the project. What is left out stays as it is.',
    example: 'howdah alert set lag --threshold 30 --for-minutes 2',
    takes: ['output', 'dryRun'],
  })
    .option('--on', 'have it open incidents')
    .option('--off', 'have it open none')
    .option('--threshold <number>', 'in the unit of the rule; default: its default again')
    .option('--for-minutes <number>', 'how long its condition must hold, or default')
    .action(
      async (
        rule: string,
        {
          on,
          off,
          threshold,
          forMinutes,
          ...options
        }: Changing & { on?: true; off?: true; threshold?: string; forMinutes?: string },
      ) => {
        if (on === true && off === true) throw new Failure('--on: found beside --off', 'usage');
        const connection = await connect(options);
        const body = {
          rule: oneOf<AlertRuleName>('rule', ALERT_RULE_NAMES, rule),
          ...(on === true || off === true ? { enabled: on === true } : {}),
          ...given('threshold', figureOf('--threshold', threshold)),
          ...given('for_minutes', figureOf('--for-minutes', forMinutes)),
        };
        const set = await answered(
          connection.client.PATCH('/projects/{project_id}/alerts/rules', {
            params: ofProject(connection),
            body,
          }),
        );
        await show(options.output, set, ALERT_RULE_VIEW);
      },
    );
}

/** A figure; null for `default`. */
function figureOf(flag: string, text: string | undefined): number | null | undefined {
  if (text === undefined) return undefined;
  return text === 'default' ? null : countOf(flag, text);
}

function addDestinationReading(destination: Command): void {
  verb(destination, 'list', {
    does: 'List the destinations.',
    example: 'howdah alert destination list',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    await showList(output, await DESTINATIONS.list(await connect()), DESTINATION_VIEW);
  });

  verb(destination, 'get <destination>', {
    does: 'Show a destination: where it sends to, and whether that works.',
    example: 'howdah alert destination get oncall',
    takes: ['output'],
  }).action(async (wanted: string, { output }: Printing) => {
    const connection = await connect();
    const found = await answered(
      connection.client.GET('/projects/{project_id}/alerts/destinations/{destination_id}', {
        params: await pathOf(connection, wanted),
      }),
    );
    await show(output, found, DESTINATION_VIEW);
  });

  verb(destination, 'test <destination>', {
    does: 'Send a test message now, and report the outcome.',
    example: 'howdah alert destination test oncall',
    takes: ['output', 'dryRun'],
  }).action(async (wanted: string, options: Changing) => {
    const connection = await connect(options);
    const params = await pathOf(connection, wanted);
    const outcome = await answered(
      connection.client.POST('/projects/{project_id}/alerts/destinations/{destination_id}/test', {
        params,
      }),
    );
    await showAs(options.output, outcome, 'message', () => {
      if (outcome.delivered) say(`accepted in ${duration(outcome.elapsed_ms)}`);
    });
    if (!outcome.delivered)
      throw new Failure(`not accepted: ${outcome.error ?? 'no reason was given'}`);
  });
}

/** Options that say where to; the secret among them is read, so that no process list shows it. */
type Config = {
  url?: string;
  host?: string;
  port?: string;
  encryption?: SmtpEncryption;
  username?: string;
  from?: string;
  to?: string;
  secret?: true;
};
type Quiet = { quiet?: string; timeZone?: string; holdCritical?: true };

const SECRET =
  'Its secret is typed at a prompt, or is the first line of standard input: the URL for slack, ' +
  'teams and webhook, the routing key for pagerduty, the password for smtp.';

const configurable = (command: Command): Command =>
  command
    .option('--host <host>', 'smtp: name or address of the mail server')
    .option('--port <port>', 'smtp: its port; default: 587')
    .addOption(
      new Option('--encryption <how>', 'smtp: default: starttls').choices(SMTP_ENCRYPTIONS),
    )
    .option('--username <name>', 'smtp: for the login; the secret is its password')
    .option('--from <address>', 'smtp: the sender of the mail')
    .option('--to <list>', 'smtp: the recipients, separated by commas')
    .option('--url <url>', 'pagerduty: of another service region than the first')
    .option('--quiet <hours>', 'hold messages, such as 22:00-07:00; none: hold none')
    .option('--time-zone <zone>', 'of the quiet hours, such as Europe/Berlin', 'UTC')
    .option('--hold-critical', 'hold critical messages as well');

function addDestinationChanging(destination: Command): void {
  configurable(
    verb(destination, 'add', {
      does: `Add a destination. ${SECRET}`,
      example:
        'howdah alert destination add --name oncall --type smtp --host mail.example.com ' +
        '--username howdah --from howdah@example.com --to dba@example.com',
      takes: ['output', 'dryRun'],
    })
      .requiredOption('--name <name>', '1 to 128 characters')
      .addOption(
        new Option('--type <type>', 'how alerts are sent')
          .choices(DESTINATION_TYPES)
          .makeOptionMandatory(),
      ),
  ).action(
    async ({
      name,
      type,
      ...options
    }: Changing & Config & Quiet & { name: string; type: DestinationType }) => {
      const connection = await connect(options);
      const quiet = quietOf(options);
      const needsSecret = type !== 'smtp' || options.username !== undefined;
      const config = { ...configOf(options), ...(needsSecret ? await secretOf(type) : {}) };
      const made = await answered(
        connection.client.POST('/projects/{project_id}/alerts/destinations', {
          params: ofProject(connection),
          body: { name, type, config, ...(quiet == null ? {} : { quiet_hours: quiet }) },
        }),
      );
      await show(options.output, made, DESTINATION_VIEW);
    },
  );

  configurable(
    verb(destination, 'change <destination>', {
      does: `Change a destination. ${SECRET}`,
      example: 'howdah alert destination change oncall --quiet 22:00-07:00',
      takes: ['output', 'dryRun'],
    })
      .option('--name <name>', '1 to 128 characters')
      .option('--secret', 'another secret, which is read'),
  ).action(
    async (
      wanted: string,
      { name, secret, ...options }: Changing & Config & Quiet & { name?: string },
    ) => {
      const connection = await connect(options);
      const { id, type } = await find(connection, DESTINATIONS, wanted);
      const config = { ...configOf(options), ...(secret === true ? await secretOf(type) : {}) };
      const changed = await answered(
        connection.client.PATCH('/projects/{project_id}/alerts/destinations/{destination_id}', {
          params: pathOfId(connection, id),
          body: {
            ...given('name', name),
            ...given('config', Object.keys(config).length === 0 ? undefined : config),
            ...given('quiet_hours', quietOf(options)),
          },
        }),
      );
      await show(options.output, changed, DESTINATION_VIEW);
    },
  );

  verb(destination, 'remove <destination>', {
    does: 'Delete a destination and its messages. Asks for confirmation on a terminal.',
    example: 'howdah alert destination remove oncall',
    takes: ['dryRun', 'yes'],
  }).action(async (wanted: string, options: Destroying) => {
    const connection = await connect(options);
    const { id, name } = await find(connection, DESTINATIONS, wanted);
    const question = `Delete the destination ${name} (${id})?`;
    await confirmCall(connection, 'deleteAlertDestination', question, options);
    await connection.client.DELETE('/projects/{project_id}/alerts/destinations/{destination_id}', {
      params: pathOfId(connection, id),
    });
    note(`destination ${name} is deleted`);
  });
}

function configOf({ url, host, port, encryption, username, from, to }: Config) {
  return {
    ...given('url', url),
    ...given('host', host),
    ...given('port', port === undefined ? undefined : countOf('--port', port)),
    ...given('encryption', encryption),
    ...given('username', username),
    ...given('from', from),
    ...given(
      'to',
      to?.split(',').map((address) => address.trim()),
    ),
  };
}

async function secretOf(type: DestinationType) {
  switch (type) {
    case 'smtp':
      return { password: await readSecret('password: ') };
    case 'pagerduty':
      return { routing_key: await readSecret('routing key: ') };
    case 'slack':
    case 'teams':
    case 'webhook':
      return { url: await readSecret('URL: ') };
  }
}

/** Quiet hours; null: none; undefined: not given. */
function quietOf({ quiet, timeZone = 'UTC', holdCritical }: Quiet) {
  if (quiet === undefined) return undefined;
  if (quiet === 'none') return null;
  const [, from = '', to = ''] = /^(\d\d:\d\d)-(\d\d:\d\d)$/.exec(quiet) ?? [];
  if (from === '')
    throw new Failure(`--quiet: found ${quiet}; expected HH:MM-HH:MM, or none`, 'usage');
  return { from, to, time_zone: timeZone, critical_passes: holdCritical !== true };
}

const pathOfId = ({ projectId }: Connection, id: string) => ({
  path: { project_id: projectId, destination_id: id },
});

const pathOf = async (connection: Connection, wanted: string) =>
  pathOfId(connection, (await find(connection, DESTINATIONS, wanted)).id);
