import { quotedWord } from '@howdah/contract/shell';
import { DELIVERY_STATUSES, EVENT_TYPES, type DeliveryStatus } from '@howdah/contract/values';
import { Option, type Command } from 'commander';
import {
  given,
  listOf,
  noun,
  verb,
  type Changing,
  type Destroying,
  type Listing,
  type Printing,
} from '../command.ts';
import { answered, connect, type Connection } from '../connection.ts';
import { Failure } from '../exit.ts';
import { find, ofProject, WEBHOOKS } from '../find.ts';
import { duration, note, say, show, showAs, showList } from '../output.ts';
import { firstOf } from '../pages.ts';
import { confirmCall } from '../permission.ts';
import { DELIVERY_VIEW, WEBHOOK_VIEW } from '../views.ts';

export function addWebhook(program: Command): void {
  const webhook = noun(
    program,
    'webhook',
    'Have events delivered to a URL, signed as in Standard Webhooks.',
  );

  verb(webhook, 'create <url>', {
    does: 'Have events delivered to a URL; prints the secret that signs them, once.',
    example:
      'howdah webhook create https://example.com/hook --types service.status,operation.finished',
    takes: ['output', 'dryRun'],
  })
    .option(
      '--types <list>',
      `types of events, separated by commas: ${EVENT_TYPES.join(', ')}; default: all`,
    )
    .action(async (url: string, { types, ...options }: Changing & { types?: string }) => {
      const connection = await connect(options);
      const body = {
        url,
        ...given('types', types === undefined ? undefined : listOf('--types', EVENT_TYPES, types)),
      };
      const made = await answered(
        connection.client.POST('/projects/{project_id}/webhooks', {
          params: ofProject(connection),
          body,
        }),
      );
      await showAs(options.output, made, WEBHOOK_VIEW.noun, () => {
        say(`The webhook delivers to ${made.url}. Its secret is shown only once:`);
        say(`  ${made.secret}`);
        say(`howdah webhook test ${quotedWord(made.url)} sends a test event now.`);
      });
    });

  verb(webhook, 'list', {
    does: 'List the webhooks.',
    example: 'howdah webhook list',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    await showList(output, await WEBHOOKS.list(await connect()), WEBHOOK_VIEW);
  });

  verb(webhook, 'test <webhook>', {
    does: 'Deliver a test event now, and report the outcome.',
    example: 'howdah webhook test https://example.com/hook',
    takes: ['output', 'dryRun'],
  }).action(async (wanted: string, options: Changing) => {
    const connection = await connect(options);
    const params = await pathOf(connection, wanted);
    const outcome = await answered(
      connection.client.POST('/projects/{project_id}/webhooks/{webhook_id}/test', { params }),
    );
    await showAs(options.output, outcome, 'delivery', () => {
      if (outcome.delivered)
        say(
          `delivered in ${duration(outcome.elapsed_ms)}: ` +
            `the receiver answered ${outcome.response_status}`,
        );
    });
    if (!outcome.delivered)
      throw new Failure(`not delivered: ${outcome.error ?? 'no reason was given'}`);
  });

  verb(webhook, 'deliveries <webhook>', {
    does: 'List the deliveries, newest first.',
    example: 'howdah webhook deliveries https://example.com/hook --status failed',
    takes: ['output', 'limit'],
  })
    .addOption(
      new Option('--status <status>', 'only those with this status').choices(DELIVERY_STATUSES),
    )
    .action(
      async (wanted: string, { status, limit, output }: Listing & { status?: DeliveryStatus }) => {
        const connection = await connect();
        const params = await pathOf(connection, wanted);
        const deliveries = await firstOf(limit, (page) =>
          connection.client.GET('/projects/{project_id}/webhooks/{webhook_id}/deliveries', {
            params: { ...params, query: { ...given('status', status), ...page } },
          }),
        );
        await showList(output, deliveries, DELIVERY_VIEW);
      },
    );

  verb(webhook, 'redeliver <webhook> <delivery>', {
    does: 'Repeat a delivery, with all its attempts.',
    example: 'howdah webhook redeliver https://example.com/hook 17',
    takes: ['output', 'dryRun'],
  }).action(async (wanted: string, delivery: string, options: Changing) => {
    const connection = await connect(options);
    const { path } = await pathOf(connection, wanted);
    const params = { path: { ...path, delivery_id: delivery } };
    const again = connection.client.POST(
      '/projects/{project_id}/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver',
      { params },
    );
    await show(options.output, await answered(again), DELIVERY_VIEW);
  });

  verb(webhook, 'delete <webhook>', {
    does: 'Delete a webhook and its pending deliveries. Asks for confirmation on a terminal.',
    example: 'howdah webhook delete https://example.com/hook',
    takes: ['dryRun', 'yes'],
  }).action(async (wanted: string, options: Destroying) => {
    const connection = await connect(options);
    const params = await pathOf(connection, wanted);
    await confirmCall(connection, 'deleteWebhook', `Delete the webhook ${wanted}?`, options);
    await connection.client.DELETE('/projects/{project_id}/webhooks/{webhook_id}', { params });
    note(`webhook ${wanted} is deleted`);
  });
}

async function pathOf(connection: Connection, wanted: string) {
  return {
    path: {
      project_id: connection.projectId,
      webhook_id: (await find(connection, WEBHOOKS, wanted)).id,
    },
  };
}
