import { spawn } from 'node:child_process';
import type { Command } from 'commander';
import { noun, verb, type Confirming, type Printing, type Waiting } from '../command.ts';
import { answered, connect } from '../connection.ts';
import { Failure } from '../exit.ts';
import { findPath, ofProject } from '../find.ts';
import { note, say, showList } from '../output.ts';
import { loadServer } from '../server.ts';
import { EXTENSION_VIEW, INSTALLED_EXTENSIONS_VIEW } from '../views.ts';
import { changeFound, PROTECTED_CHANGES } from './service-shared.ts';

export function addExtension(program: Command): void {
  const extension = noun(
    program,
    'extension',
    'Show, enable, disable and install extensions of PostgreSQL.',
  );

  verb(extension, 'list <service>', {
    does: 'List the extensions that a service has or can have, and why others are refused.',
    example: 'howdah extension list orders',
    takes: ['output'],
  }).action(async (name: string, { output }: Printing) => {
    const connection = await connect();
    const found = await answered(
      connection.client.GET(
        '/projects/{project_id}/services/{service_id}/extensions',
        await findPath(connection, name),
      ),
    );
    await showList(output, found, EXTENSION_VIEW);
  });

  verb(extension, 'installed', {
    does: 'List the installed extensions of each PostgreSQL, with the edition of TimescaleDB.',
    example: 'howdah extension installed -o json',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    const connection = await connect();
    const installed = connection.client.GET('/projects/{project_id}/extensions', {
      params: ofProject(connection),
    });
    await showList(output, await answered(installed), INSTALLED_EXTENSIONS_VIEW);
  });

  verb(extension, 'enable <service> <extension>', {
    does: 'Enable an extension. Some restart the service: PostgreSQL loads them at its start.',
    example: 'howdah extension enable orders timescaledb',
    takes: PROTECTED_CHANGES,
  }).action(async (wanted: string, name: string, options: Waiting & Confirming) =>
    changeFound(wanted, 'enableExtension', options, (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/extensions', {
        params,
        body: { name },
      }),
    ),
  );

  verb(extension, 'disable <service> <extension>', {
    does: 'Disable an extension: it is dropped, unless something depends on it.',
    example: 'howdah extension disable orders timescaledb',
    takes: PROTECTED_CHANGES,
  }).action(async (wanted: string, name: string, options: Waiting & Confirming) =>
    changeFound(wanted, 'disableExtension', options, (client, { path, ...asked }) =>
      client.DELETE('/projects/{project_id}/services/{service_id}/extensions/{extension_name}', {
        params: { path: { ...path, extension_name: name }, ...asked },
      }),
    ),
  );

  addInstall(extension);
}

function addInstall(extension: Command): void {
  verb(extension, 'install <extension>', {
    does: 'Install the package of an extension: as root with apt-get, else it prints the command.',
    example: 'howdah extension install postgis',
  }).action(async (name: string) => {
    const server = await loadServer();
    const plan = await server.planInstall(name);
    if ('why' in plan) throw new Failure(plan.why, 'usage');
    const command = plan.command.join(' ');
    if (!plan.canRun) return say(command);
    note(`${plan.what}: ${command}`);
    await run(plan.command);
    note(`Services see it at once: howdah extension enable SERVICE ${name}`);
  });
}

/** Runs a program that writes to the terminal. @throws Failure when it fails */
function run([program = '', ...args]: readonly string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: 'inherit' });
    child.once('error', (error) => reject(new Failure(`${program}: ${error.message}`)));
    child.once('exit', (code) =>
      code === 0 ? resolve() : reject(new Failure(`${program} ended with status ${code}`)),
    );
  });
}
