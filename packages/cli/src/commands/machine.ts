import { resolve } from 'node:path';
import { readFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { placeOf } from '@howdah/contract/connect';
import { readText } from '@howdah/client/node';
import { endpointOf } from '../address.ts';
import { verb, given, type Waiting } from '../command.ts';
import { connectHere, homeDirectory, connect } from '../connection.ts';
import { Failure } from '../exit.ts';
import { ALLOW_LISTS, find, findVpc, listServices, ofProject } from '../find.ts';
import { say, table, withIds, paint, note, stopwatch } from '../output.ts';
import { noteProblems } from '../problems.ts';
import { loadServer } from '../server.ts';
import { follow } from '../follow.ts';
import { CHANGES, showChangedService } from './service-shared.ts';
import { MOMENTS, momentOf } from '../moment.ts';

export function addStatus(program: Command): void {
  const does = 'Show whether the control plane runs, and the services with their statuses.';
  verb(program, 'status', { does, example: 'howdah status' }).action(async () => {
    const server = await loadServer();
    const control = await server.findControl(homeDirectory());
    if (control === null)
      throw new Failure(
        `The control plane of ${homeDirectory()} is not running; howdah up starts it. ` +
          'The databases keep running without it.',
        'noConnection',
      );
    say(`The control plane runs: ${control.apiUrl} (process ${control.pid})`);
    const connection = await connectHere();
    const services = await listServices(connection);
    if (services.length === 0) say('No services yet: howdah service create --name first');
    else {
      const hasRegions = new Set(services.map(({ region_code: region }) => region)).size > 1;
      table(
        ['NAME', 'TYPE', ...(hasRegions ? ['REGION'] : []), 'STATUS', 'ENDPOINT'],
        withIds(
          services.map((service) => [
            service.name,
            service.service_type,
            ...(hasRegions ? [service.region_code] : []),
            service.status,
            placeOf(endpointOf(service)),
          ]),
          services.map(({ service_id: id }) => id),
        ),
      );
    }
    await noteProblems(connection, services);
  });
}

/** The time limit of an orderly stop: running steps end first. */
const STOP_DEADLINE_MS = 60_000;

export function addDown(program: Command): void {
  const does = 'Stop the control plane; the databases keep running unless --databases is given.';
  verb(program, 'down', { does, example: 'howdah down --databases' })
    .option('--databases', 'stop the databases as well')
    .action(async ({ databases }: { databases?: true }) => {
      const server = await loadServer();
      const home = homeDirectory();
      const control = await server.findControl(home);
      if (control === null) say('The control plane is not running.');
      else {
        const target = await server.findProcess(control.pid);
        server.signal(control.pid, 'SIGTERM');
        if (target !== null && !(await server.waitUntilGone(target, STOP_DEADLINE_MS))) {
          throw new Failure(
            `the control plane (process ${control.pid}) does not end; ` +
              `its log has the reason: ${home}/logs/control.log`,
          );
        }
        say(
          'The control plane has ' +
            `stopped${databases === true ? '.' : '; the databases keep running.'}`,
        );
      }
      if (databases !== true) return;
      const stopped = await server.stopDatabases(home, (id) => say(`stopped ${id}`));
      say(
        `${stopped} ${stopped === 1 ? 'database' : 'databases'} stopped. ` +
          'They start again with howdah up.',
      );
    });
}

export function addDoctor(program: Command): void {
  const does =
    'Examine this machine: what Howdah can do here, what is missing, and the command that adds it.';
  verb(program, 'doctor', { does, example: 'howdah doctor' }).action(async () => {
    const server = await loadServer();
    const mark = { ok: paint.green('✓'), note: paint.yellow('•'), missing: paint.red('✗') };
    for (const { what, state, found, remedy } of await server.doctor(homeDirectory())) {
      say(`${mark[state]} ${paint.bold(what)}: ${found}`);
      if (remedy !== undefined) say(`    ${remedy}`);
    }
  });
}

export function addAudit(program: Command): void {
  const does =
    'Compare the metadata database with the machine and with the clusters of regions: ' +
    'processes, ports, directories, limits, Clusters, operations.';
  verb(program, 'audit', { does, example: 'howdah audit' }).action(async () => {
    const server = await loadServer();
    const home = homeDirectory();
    const problems = await server.checkIntegrity({
      home,
      databaseUrl: readText('HOWDAH_DATABASE_URL', process.env['HOWDAH_DATABASE_URL']) || null,
      credentialPrograms: listOf('HOWDAH_CREDENTIAL_PROGRAMS'),
    });
    problems.push(...(await server.checkMachine({ home })));
    // No contradiction: they are no part of the findings.
    for (const sentence of await server.listAside(home)) note(sentence);
    for (const problem of problems) say(problem);
    if (problems.length > 0)
      throw new Failure(
        `${problems.length} ${problems.length === 1 ? 'problem' : 'problems'} found`,
      );
    say('No problems found.');
  });
}

/** A setting that is a list, which the control plane has checked. */
const listOf = (name: string): string[] =>
  (readText(name, process.env[name]) ?? '').split(',').map((part) => part.trim());

// `howdah adopt`

type Adopting = Waiting & { name?: string; vpc?: string; allowList?: string };

export function addAdopt(program: Command): void {
  verb(program, 'adopt <directory>', {
    does:
      'Make a directory of a service that the metadata database does not know a service again, ' +
      'with its id, data and passwords. howdah audit lists such directories. Needs an admin key ' +
      'of the operator project.',
    example: 'howdah adopt ~/.howdah/data/services/linltu4hxx --name orders',
    takes: CHANGES,
  })
    .option('--name <name>', 'default: its id')
    .option('--vpc <vpc>', 'the VPC that it comes into, by its id or name')
    .option('--allow-list <allow-list>', 'the allow list that it gets, by its id or description')
    .action(async (directory: string, options: Adopting) => {
      const connection = await connect(options);
      const { name, vpc, allowList } = options;
      const networks = {
        ...given('vpc_id', vpc === undefined ? undefined : (await findVpc(connection, vpc)).id),
        ...given(
          'allow_list_id',
          allowList === undefined
            ? undefined
            : (await find(connection, ALLOW_LISTS, allowList)).allow_list_id,
        ),
      };
      const { data, response } = await connection.client.POST(
        '/projects/{project_id}/services/adopt',
        {
          params: ofProject(connection),
          body: { directory: resolve(directory), ...given('name', name), ...networks },
        },
      );
      if (data === undefined) throw new Failure('the server answered without a body');
      for (const line of data.assumed ?? []) note(`assumed: ${line}`);
      await follow(connection, response, options);
      await showChangedService(connection, options.output, data, data.service_id);
    });
}

export function addControl(program: Command): void {
  verb(program, 'backup-control <file>', {
    does:
      'Write the data of the control plane (metadata database, CA, first key; ' +
      'no services) to a file, which contains secrets.',
    example: 'howdah backup-control /backup/howdah.json',
  }).action(async (file: string) => {
    const server = await loadServer();
    const rows = await server.backupControl(homeDirectory(), resolve(file));
    say(
      `${rows} rows in ${resolve(file)}. The databases of services are not in it; ` +
        'they stay where they are.',
    );
  });

  verb(program, 'restore-control <file>', {
    does:
      'Restore the file of backup-control into an empty HOWDAH_HOME. ' +
      'The databases in its data directory belong to it again.',
    example: 'howdah restore-control /backup/howdah.json',
  }).action(async (file: string) => {
    const server = await loadServer();
    const problems = await server.restoreControl(homeDirectory(), resolve(file));
    for (const problem of problems) say(problem);
    say('Restored. howdah up takes over the databases.');
  });

  verb(program, 'metadata-database [place]', {
    does:
      'Show which metadata database the installation has, or change it while the control ' +
      'plane is stopped: an empty database gets a copy, and one that holds the installation ' +
      'is taken as it is.',
    example: 'howdah metadata-database postgres://howdah:password@db1/howdah',
  }).action(async (place: string | undefined) => {
    const server = await loadServer();
    const home = homeDirectory();
    if (place === undefined) return say(await server.describeMetadata(home));
    const { databaseUrl } = readSetting(server, place);
    say(await server.changeMetadata(home, databaseUrl));
  });
}

/** @throws Failure for a place that is neither `own` nor a URL of PostgreSQL */
function readSetting(server: Awaited<ReturnType<typeof loadServer>>, place: string) {
  if (place === 'own') return { databaseUrl: null };
  try {
    return server.readConfig({}, { HOWDAH_DATABASE_URL: place });
  } catch (error) {
    if (error instanceof server.ConfigError) throw new Failure(error.message, 'usage');
    throw error;
  }
}

// `howdah recover`: rebuilds an installation from a repository.

export function addRecover(program: Command): void {
  verb(program, 'recover <file>', {
    does: 'Rebuild an installation in an empty HOWDAH_HOME from the repository of a recovery kit.',
    example: 'howdah recover recovery-kit.json && howdah up',
  })
    .option(
      '--only <services>',
      'ids or names, separated by commas; howdah service recover restores the others later',
    )
    .option('--at <time>', `as they were at this time: ${MOMENTS}; default: the newest state`)
    .action(async (file: string, { only, at }: { only?: string; at?: string }) => {
      const server = await loadServer();
      const kit = await readFile(file === '-' ? '/dev/stdin' : file, 'utf8');
      const options = {
        only: only === undefined ? null : only.split(',').map((name) => name.trim()),
        at: at === undefined ? null : momentOf('--at', at),
      };
      const sentences = await server.recover(homeDirectory(), kit, options, stopwatch());
      for (const sentence of sentences) say(sentence);
      say('howdah up restores the services, PROD first; howdah status shows how far they are.');
    });
}
