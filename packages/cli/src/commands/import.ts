import type { Addon } from '@howdah/contract/types';
import type { Schemas } from '@howdah/client';
import type { Command } from 'commander';
import { countOf, given, noun, verb, type Printing, type Waiting } from '../command.ts';
import { connect, type Connection } from '../connection.ts';
import { exitOf, Failure } from '../exit.ts';
import { findService, ofProject, readService } from '../find.ts';
import { follow } from '../follow.ts';
import { show, note, paintNote, type View } from '../output.ts';
import type { Dump } from '../transfer/files.ts';
import type { Endpoint } from '../transfer/endpoint.ts';
import type { Report } from '../transfer/import.ts';
import type { Findings } from '../transfer/script/examine.ts';
import { showCreated } from './service-create.ts';
import { sizeOf, type Size } from './service-shared.ts';

type ImportOptions = Size & {
  name?: string;
  into?: string;
  follow?: true;
  jobs?: string;
  dryRun?: true;
};

/** `howdah import …`. Its modules are loaded when it runs: other commands start without them. */
export function addImport(program: Command): void {
  const group = noun(
    program,
    'import',
    'Import a database or a dump into a service. "start" may be left out.',
  );
  addStart(group);
  addResume(group);
  addStatus(group);
  addCutover(group);
  addCancel(group);
}

function addStart(group: Command): void {
  verb(group, 'start <source>', {
    does:
      'Import a live database or a file of pg_dump into a new service, with checks ' +
      'before and a comparison of all rows after. The password of the source comes from ' +
      'the URL, PGPASSWORD, ~/.pgpass or the prompt.',
    example: 'howdah import start postgres://app@db.example.com/shop --name shop --follow',
    takes: ['force'],
    isDefault: true,
  })
    .option('--name <name>', 'create a service with this name')
    .option('--into <service>', 'import into this service, which has to be empty')
    .option('--follow', 'apply the changes of the source until howdah import cutover')
    .option(
      '--jobs <number>',
      'tables or indexes at a time; default: 4 from a database, 1 from a file, which is ' +
        'then one transaction',
    )
    .option('--cpu-millis <number>', 'thousandths of a core, or shared')
    .option('--memory-gbs <number>', 'gigabytes, or shared')
    .option('--storage-gb <number>', 'gigabytes of disk; default: depends on the size')
    .option('--dry-run', 'make the checks of the source, and do nothing')
    .action(startImport);
}

async function startImport(source: string, options: ImportOptions): Promise<void> {
  const { isUrl, endpointOfUrl } = await import('../transfer/endpoint.ts');
  const jobs = countOf('--jobs', options.jobs ?? (isUrl(source) ? '4' : '1'));
  if (jobs < 1 || jobs > 32)
    throw new Failure(`--jobs: found ${jobs}; expected a whole number from 1 to 32`, 'usage');
  if ((options.name === undefined) === (options.into === undefined) && options.dryRun !== true)
    throw new Failure('give --name for a new service, or --into for one that is empty', 'usage');
  if (isUrl(source)) return importLive(endpointOfUrl(source), options, jobs);
  if (options.follow === true)
    throw new Failure('--follow needs a live database, postgres://…; found a file', 'usage');
  await importFile(source, options, jobs);
}

/** A source that was examined, and the service that it would go into. */
type Into = { connection: Connection; service: Schemas['Service'] | null };

/** A service of `--into` is looked at before anything is done. */
async function findInto({ into, dryRun }: ImportOptions): Promise<Into> {
  const connection = await connect({ dryRun: dryRun === true });
  return { connection, service: into === undefined ? null : await findService(connection, into) };
}

async function importLive(source: Endpoint, options: ImportOptions, jobs: number): Promise<void> {
  const { checkSource, importInto } = await import('../transfer/import.ts');
  const { addonsFor, problemsOfExtensions, readOffers } = await import('../transfer/import.ts');
  const into = await findInto(options);
  const follow = options.follow === true;
  const checked = await checkSource(source, follow, async ({ extensions, major }) => {
    const names = extensions.map(({ name }): [string, number] => [name, 0]);
    const addons = addonsFor(extensions.map(({ name }) => name));
    const offers = await readOffers(into.connection, into.service?.service_id ?? null, addons);
    return [
      ...problemsOfExtensions(names, offers, into.service?.name ?? null),
      ...(offers.major !== null && offers.major < major
        ? [
            {
              line: 0,
              what: `the source runs PostgreSQL ${major}, a new service ${offers.major}`,
              remedy: `create a service of PostgreSQL ${major}, and import --into it`,
            },
          ]
        : []),
    ];
  });
  if (options.dryRun === true) return note('Nothing was done. The source can be imported.');
  const addons = addonsFor(checked.source.extensions.map(({ name }) => name));
  await withService(into, options, addons, (service, password) =>
    importInto(into.connection, service, password, checked, { follow, jobs }),
  );
}

async function importFile(path: string, options: ImportOptions, jobs: number): Promise<void> {
  const { examineContents, examineDump } = await import('../transfer/files.ts');
  const { addonsFor, problemsOfExtensions, readOffers, refuse } =
    await import('../transfer/import.ts');
  const { leftOutLines } = await import('../transfer/script/examine.ts');
  const { step } = await import('../transfer/steps.ts');
  const dump = await examineDump(path);
  const findings = await step('examine the dump', () => examineContents(dump));
  for (const line of leftOutLines(findings)) note(`${paintNote.yellow('left out')} ${line}`);
  const into = await findInto(options);
  const addons = addonsFor(findings.extensions.keys());
  const offers = await readOffers(into.connection, into.service?.service_id ?? null, addons);
  const problems = [
    ...findings.obstacles,
    ...problemsOfExtensions(findings.extensions, offers, into.service?.name ?? null),
  ];
  if (problems.length > 0) refuse(path, problems);
  if (options.dryRun === true) return note(`Nothing was done. ${path} can be imported.`);
  await withService(into, options, addons.length === 0 ? undefined : addons, (service, password) =>
    restoreDump(into.connection, service, password, { dump, findings, jobs }),
  );
}

async function restoreDump(
  connection: Connection,
  service: Schemas['Service'],
  password: string | null,
  { dump, findings, jobs }: { dump: Dump; findings: Findings; jobs: number },
): Promise<void> {
  const { endpointOfService, open, withPassword } = await import('../transfer/endpoint.ts');
  const { importDump } = await import('../transfer/files.ts');
  const { requireEmpty } = await import('../transfer/import.ts');
  const target = await withPassword(
    await endpointOfService(connection, service, password),
    'howdah import',
  );
  const client = await open(target, 'howdah import');
  try {
    await requireEmpty(client, service.name);
  } finally {
    await client.end();
  }
  await importDump(dump, target, jobs, findings);
}

/**
 * Imports into a service. A new service is deleted again if the import leaves
 * nothing that it could continue from.
 */
async function withService(
  { connection, service }: Into,
  options: ImportOptions,
  addons: Addon[] | undefined,
  work: (service: Schemas['Service'], password: string | null) => Promise<void>,
): Promise<void> {
  if (service !== null) return work(service, null);
  const body = { name: options.name ?? '', ...sizeOf(options), ...given('addons', addons) };
  const made = await connection.client.POST('/projects/{project_id}/services', {
    params: ofProject(connection),
    body,
  });
  const waiting: Waiting = { output: 'table', wait: true };
  await showCreated(connection, made, waiting);
  const { service_id: id = '', initial_password: password = null } = made.data ?? {};
  try {
    await work(await readService(connection, id), password);
  } catch (error) {
    const { hasState } = await import('../transfer/state.ts');
    if (!(await hasState(id))) {
      const { response } = await connection.client.DELETE(
        '/projects/{project_id}/services/{service_id}',
        { params: { path: { ...ofProject(connection).path, service_id: id } } },
      );
      await follow(connection, response, waiting);
      note(`Nothing is left: the service ${id}, which was created for this import, is deleted.`);
    }
    throw error;
  }
}

function addResume(group: Command): void {
  verb(group, 'resume <service>', {
    does: 'Continue an import that was interrupted.',
    example: 'howdah import resume shop',
  }).action(async (wanted: string) => {
    const { resumeImport } = await import('../transfer/import.ts');
    const connection = await connect();
    await resumeImport(connection, await nameIn(connection, wanted));
  });
}

function addStatus(group: Command): void {
  verb(group, 'status <service>', {
    does: 'Show how far an import is.',
    example: 'howdah import status shop',
    takes: ['output'],
  }).action(async (wanted: string, { output }: Printing) => {
    const { reportImport } = await import('../transfer/import.ts');
    await show(output, await reportImport(await nameIn(await connect(), wanted)), VIEW);
  });
}

const VIEW: View<Report> = {
  noun: 'import',
  columns: [
    ['SERVICE', ({ name }) => name],
    ['SOURCE', ({ source }) => source],
    ['STAGE', ({ stage }) => STAGES[stage]],
    ['RUNNING', ({ running }) => (running ? 'yes' : 'no: howdah import resume continues it')],
    ['BEHIND', ({ behind_bytes: bytes }) => (bytes === null ? '' : `${bytes} bytes of WAL`)],
    [
      'KEPT',
      ({ kept_bytes: bytes }) => (bytes === null ? '' : `${bytes} bytes of WAL in the source`),
    ],
  ],
};

const STAGES: Readonly<Record<Report['stage'], string>> = {
  copy: 'copying rows',
  finish: 'finishing the schema',
  follow: 'following the source',
};

function addCutover(group: Command): void {
  verb(group, 'cutover <service>', {
    does:
      'End a followed import: lock the source against writes, apply the last changes, ' +
      'compare all rows, and make triggers and foreign keys. Prints for how long the ' +
      'source accepted no writes.',
    example: 'howdah import cutover shop',
  })
    .option('--no-compare', 'do not compare all rows, which takes most of the time')
    .action(async (wanted: string, { compare }: { compare: boolean }) => {
      const { cutoverImport } = await import('../transfer/import.ts');
      await cutoverImport(await nameIn(await connect(), wanted), compare);
    });
}

function addCancel(group: Command): void {
  verb(group, 'cancel <service>', {
    does:
      'Give up an import, and remove its replication slot and publication from the ' +
      'source. The service stays.',
    example: 'howdah import cancel shop',
  }).action(async (wanted: string) => {
    const { cancelImport } = await import('../transfer/import.ts');
    await cancelImport(await nameIn(await connect(), wanted));
  });
}

/** A deleted service may still have an import, which keeps a slot in its source. */
async function nameIn(
  connection: Connection,
  wanted: string,
): Promise<{ id: string; name: string }> {
  try {
    const { service_id: id, name } = await findService(connection, wanted);
    return { id, name };
  } catch (error) {
    if (exitOf(error) !== 'notFound') throw error;
    return { id: wanted, name: wanted };
  }
}
