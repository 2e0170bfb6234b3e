import { AUDIT_OUTCOMES, type AuditOutcome } from '@howdah/contract/values';
import { Option, type Command } from 'commander';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { given, noun, verb, type Listing } from '../command.ts';
import { connect, type Connection } from '../connection.ts';
import { Failure } from '../exit.ts';
import { find, findServiceId, keysOf, ofProject } from '../find.ts';
import { momentIfGiven, MOMENTS } from '../moment.ts';
import { keyNames, serviceNames } from '../names.ts';
import { showList } from '../output.ts';
import { firstOf } from '../pages.ts';
import { auditView } from '../views.ts';

type Filter = {
  service?: string;
  operation?: string;
  key?: string;
  call?: string;
  outcome?: AuditOutcome;
  since?: string;
  until?: string;
};

export function addAuditLog(program: Command): void {
  const log = noun(
    program,
    'audit-log',
    'Read the audit log: who requested what, and the outcome.',
  );

  filtered(
    verb(log, 'list', {
      does: 'Print who requested what, and the outcome, newest first.',
      example: 'howdah audit-log list --call deleteService --outcome refused',
      takes: ['output', 'limit'],
    }),
  ).action(async ({ output, limit, ...filter }: Listing & Filter) => {
    const connection = await connect();
    const query = await queryOf(connection, filter);
    const entries = await firstOf(limit, (page) =>
      connection.client.GET('/projects/{project_id}/audit', {
        params: { ...ofProject(connection), query: { ...query, ...page } },
      }),
    );
    const view = auditView(
      await serviceNames(connection, output),
      await keyNames(connection, output),
    );
    await showList(output, entries, view);
  });

  filtered(
    verb(log, 'export', {
      does: 'Print the whole audit log as JSON lines, oldest first.',
      example: 'howdah audit-log export --since 2026-01-01T00:00:00Z >audit.jsonl',
    }),
  ).action(async (filter: Filter) => exportAll(await connect(), filter));
}

function filtered(command: Command): Command {
  return command
    .option(
      '--service <service>',
      'only calls on this service, by its id or name; a deleted one by its id',
    )
    .option('--operation <id>', 'only the call that requested this operation')
    .option('--key <key>', 'only calls with this key, by its public half or name')
    .option('--call <name>', 'only this call, like createService')
    .addOption(
      new Option('--outcome <outcome>', 'only calls with this outcome').choices(AUDIT_OUTCOMES),
    )
    .option('--since <time>', `only at or after it: ${MOMENTS}`)
    .option('--until <time>', 'only before it');
}

async function queryOf(
  connection: Connection,
  { service, operation, key, call, outcome, since, until }: Filter,
) {
  return {
    ...given(
      'service_id',
      service === undefined ? undefined : await findServiceId(connection, service),
    ),
    ...given('operation_id', operation),
    ...given('public_key', key === undefined ? undefined : await findKey(connection, key)),
    ...given('call', call),
    ...given('outcome', outcome),
    ...given('since', momentIfGiven('--since', since)),
    ...given('until', momentIfGiven('--until', until)),
  };
}

/** The public half of a key. The log also has keys that are no longer listed, or never existed. */
async function findKey(connection: Connection, wanted: string): Promise<string> {
  if (/^HD[a-z0-9]+$/.test(wanted)) return wanted;
  return (await find(connection, keysOf(connection.projectId), wanted)).public_key;
}

/** Prints the log as a stream, however long it is. */
async function exportAll(connection: Connection, filter: Filter): Promise<void> {
  const params = { ...ofProject(connection), query: await queryOf(connection, filter) };
  const { data } = await connection.client.GET('/projects/{project_id}/audit/export', {
    params,
    parseAs: 'stream',
  });
  if (data === null || data === undefined) throw new Failure('the server answered without a body');
  await pipeline(Readable.from(data), process.stdout, { end: false });
}
