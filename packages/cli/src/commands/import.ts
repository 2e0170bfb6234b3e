import { EXTENSION_OF_ADDON, ADDONS, type Addon } from '@howdah/contract/types';
import type { Schemas } from '@howdah/client';
import type { Command } from 'commander';
import { countOf, given, noun, verb, type Printing, type Waiting } from '../command.ts';
import { connect, type Connection } from '../connection.ts';
import { exitOf, Failure } from '../exit.ts';
import { findService, ofProject, readService } from '../find.ts';
import { show, note, type View } from '../output.ts';
import type { Dump } from '../transfer/files.ts';
import type { Checked, Report } from '../transfer/import.ts';
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
  if (isUrl(source)) {
    const { checkSource, importInto } = await import('../transfer/import.ts');
    const follow = options.follow === true;
    const checked = await checkSource(endpointOfUrl(source), follow);
    if (options.dryRun === true) return note('Nothing was done. The source can be imported.');
    const connection = await connect();
    const { service, password } = await serviceFor(connection, options, addonsOf(checked));
    return importInto(connection, service, password, checked, { follow, jobs });
  }
  if (options.follow === true)
    throw new Failure('--follow needs a live database, postgres://…; found a file', 'usage');
  await importFile(source, options, jobs);
}

async function importFile(path: string, options: ImportOptions, jobs: number): Promise<void> {
  const { examineDump } = await import('../transfer/files.ts');
  const dump = await examineDump(path);
  if (options.dryRun === true) return note(`Nothing was done. ${path} can be imported.`);
  const connection = await connect();
  const { service, password } = await serviceFor(connection, options, undefined);
  await restoreDump(connection, service, password, dump, jobs);
}

async function restoreDump(
  connection: Connection,
  service: Schemas['Service'],
  password: string | null,
  dump: Dump,
  jobs: number,
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
  try {
    await importDump(dump, target, jobs);
  } catch (error) {
    const { service_id: id, name } = service;
    note(
      jobs > 1
        ? `${name} (${id}) has a part of the dump: howdah service delete ${id}, and import again`
        : `${name} (${id}) is empty as before. When the cause is gone: howdah import ` +
            `${dump.path} --into ${id}. To give up: howdah service delete ${id}`,
    );
    throw error;
  }
}

/** The add-ons whose extensions the source has. */
function addonsOf({ source }: Checked): Addon[] {
  const names = new Set(source.extensions.map(({ name }) => name));
  return ADDONS.filter((addon) => names.has(EXTENSION_OF_ADDON[addon]));
}

/** The service to import into, and its password if only this answer has it. */
async function serviceFor(
  connection: Connection,
  options: ImportOptions,
  addons: Addon[] | undefined,
): Promise<{ service: Schemas['Service']; password: string | null }> {
  if (options.into !== undefined)
    return { service: await findService(connection, options.into), password: null };
  const body = { name: options.name ?? '', ...sizeOf(options), ...given('addons', addons) };
  const made = await connection.client.POST('/projects/{project_id}/services', {
    params: ofProject(connection),
    body,
  });
  const waiting: Waiting = { output: 'table', wait: true };
  await showCreated(connection, made, waiting);
  const { service_id: id = '', initial_password: password = null } = made.data ?? {};
  return { service: await readService(connection, id), password };
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
    ['SERVICE', ({ name, service_id: id }) => `${name} (${id})`],
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
