import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Schemas } from '@howdah/client';
import { simulationNote } from '@howdah/contract/simulated';
import { ADMIN_ROLE, DATABASE_NAME } from '@howdah/contract/types';
import { CLIENTS, isClientName, programOf } from '@howdah/contract/connect';
import type { Command } from 'commander';
import {
  clientHints,
  endpointOf,
  poolerOf,
  urlOf,
  variablesOf,
  whoConnects,
  type Address,
} from '../address.ts';
import { verb, type Printing, countOf } from '../command.ts';
import { connect, findCa, answered } from '../connection.ts';
import { Failure } from '../exit.ts';
import { findService, findPath } from '../find.ts';
import { note, say, showAs, duration, table } from '../output.ts';

export function addPsql(program: Command): void {
  verb(program, 'psql <service> [psql-options...]', {
    does: 'Open psql on a service. The password comes from PGPASSWORD, ~/.pgpass or the prompt.',
    example: "howdah psql orders -c 'select version()'",
  })
    .option('--pooler', 'through its connection pooler; write it before the name of the service')
    .passThroughOptions()
    .action(async (name: string, psqlOptions: string[], { pooler }: { pooler?: true }) => {
      const connection = await connect();
      const service = await findService(connection, name);
      const simulated = simulationNote(service);
      if (simulated !== null) throw new Failure(`${name}: ${simulated}`, 'usage');
      const { host, port } = askedFor(service, pooler);
      const ca = await findCa(connection.apiUrl);
      const mode =
        ca === null
          ? 'sslmode=require'
          : `sslmode=verify-full sslrootcert='${ca.replaceAll(/['\\]/g, '\\$&')}'`;
      const words = `host=${host} port=${port} user=${ADMIN_ROLE} dbname=${DATABASE_NAME} ${mode}`;
      const child = spawn('psql', [words, ...psqlOptions], { stdio: 'inherit' });
      const [code] = await Promise.race([
        once(child, 'exit'),
        once(child, 'error').then(() => {
          throw new Failure('psql is not installed: apt-get install postgresql-client');
        }),
      ]);
      const who = whoConnects(service);
      if (code === NO_CONNECTION && who !== null) note(who);
      process.exitCode = typeof code === 'number' ? code : 1;
    });
}

/** The exit code of psql without a connection. */
const NO_CONNECTION = 2;

export function addUrl(program: Command): void {
  verb(program, 'url <service>', {
    does:
      'Print the connection string of a service, without its password, which is not stored; ' +
      'env: the variables of libpq.',
    example: 'pg_dump "$(howdah url orders)"',
    takes: ['output'],
  })
    .option('--pooler', 'through its connection pooler')
    .option(
      '--for <client>',
      `print a program for a client, which reads PGPASSWORD: ${Object.keys(CLIENTS).join(', ')}`,
    )
    .action(async (name: string, { output, pooler, for: client }: Urls) => {
      const connection = await connect();
      const service = await findService(connection, name);
      const address = { ...askedFor(service, pooler), ca: await findCa(connection.apiUrl) };
      if (client !== undefined) {
        if (!isClientName(client)) throw new Failure(unknownClient(client), 'usage');
        say(programOf(client, address));
        const simulated = simulationNote(service);
        if (simulated !== null) note(simulated);
        return;
      }
      await showAs(output, service, 'service', () => say(urlOf(address)), variablesOf(address));
      // A script that reads the URL gets no hints.
      if (output === 'table' && process.stdout.isTTY)
        for (const line of hintsOf(service, address)) note(line);
    });
}

type Urls = Printing & { pooler?: true; for?: string };

const unknownClient = (client: string): string =>
  `there is no program for ${client}; there are: ${Object.keys(CLIENTS).join(', ')}`;

function hintsOf(service: Schemas['Service'], address: Address): string[] {
  const simulated = simulationNote(service);
  const who = whoConnects(service);
  const hints = simulated === null ? clientHints(address) : [simulated];
  return who === null ? hints : [who, ...hints];
}

/** The endpoint of a service, or that of its pooler. @throws Failure usage when it has none */
function askedFor(service: Schemas['Service'], pooler = false): Schemas['Endpoint'] {
  if (!pooler) return endpointOf(service);
  const { name, service_id: id } = service;
  const found = poolerOf(service);
  if (found === undefined)
    throw new Failure(
      `${name} has no connection pooler: howdah service enable-pooler ${id}`,
      'usage',
    );
  return found;
}

type QueryOptions = Printing & {
  database?: string;
  parameter?: string[];
  maxRows: string;
  timeoutMs: string;
};

export function addQuery(program: Command): void {
  verb(program, 'query <service> <sql>', {
    does: 'Run one read-only statement.',
    example: "howdah query orders 'select * from orders where id = $1' --parameter 42",
    takes: ['output'],
  })
    .option('--database <name>', 'the database of the service; default: tsdb')
    .option('--parameter <text...>', 'values of the parameters $1, $2, …, in order')
    .option('--max-rows <number>', 'maximum number of rows, up to 10000', '100')
    .option('--timeout-ms <number>', 'time limit in milliseconds, up to 60000', '10000')
    .action(async (name: string, sql: string, options: QueryOptions) => {
      const connection = await connect();
      const body = {
        sql,
        ...(options.database === undefined ? {} : { database: options.database }),
        parameters: options.parameter ?? [],
        max_rows: countOf('--max-rows', options.maxRows),
        timeout_ms: countOf('--timeout-ms', options.timeoutMs),
      };
      const path = await findPath(connection, name);
      const result = await answered(
        connection.client.POST('/projects/{project_id}/services/{service_id}/query', {
          ...path,
          body,
        }),
      );
      const { columns, rows, row_count: count, truncated, elapsed_ms: tookMs } = result;
      await showAs(options.output, result, 'query', () => {
        const titles = columns.map((column) => column.name);
        if (columns.length > 0)
          table(
            titles,
            rows.map((row) => row.map((value) => value ?? 'NULL')),
          );
        note(
          `${count} row${count === 1 ? '' : 's'} in ` +
            `${duration(tookMs)}${truncated ? '; there are more (--max-rows)' : ''}`,
        );
      });
    });
}
