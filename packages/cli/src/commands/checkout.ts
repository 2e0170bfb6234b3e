/** `howdah checkout`: a fork of a service for each branch of a git repository. */
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { HowdahError, type Schemas } from '@howdah/client';
import { subjectOf } from '@howdah/contract/permissions';
import { NAME_MAX_CHARACTERS } from '@howdah/contract/types';
import type { Command } from 'commander';
import { endpointOf, urlOf } from '../address.ts';
import {
  changeForks,
  findRepository,
  forksFileOf,
  git,
  hasBranch,
  readForks,
  readIfThere,
  type BranchFork,
  type BranchForks,
  type Repository,
} from '../branch-forks.ts';
import { given, verb } from '../command.ts';
import { connect, findCa, type Connection } from '../connection.ts';
import { withVariable } from '../env-file.ts';
import { Failure } from '../exit.ts';
import { findService, pathOf, readService } from '../find.ts';
import { follow, followService } from '../follow.ts';
import { ownCommand, ROOT } from '../installation-form.ts';
import { secondsOf } from '../moment.ts';
import { note, say } from '../output.ts';

type Service = Schemas['Service'];
type Options = {
  from?: string;
  ttl?: string;
  variable?: string;
  hook?: true;
};

const ENV_FILE = '.env';
/** Names of forks that are tried for a branch. */
const MOST_NAMES = 20;

export function addCheckout(program: Command): void {
  verb(program, 'checkout [branch]', {
    does:
      'Fork a service for a branch of the git repository, once, and write the URL of the fork to ' +
      '.env. Forks of branches that are gone are deleted.',
    example: 'howdah checkout --from orders --ttl 7d',
  })
    .option('--from <service>', 'the service to fork; needed the first time in a repository')
    .option('--ttl <time>', 'each fork is deleted so long after its last checkout, such as 7d')
    .option('--variable <name>', 'the variable in .env; default: DATABASE_URL')
    .option('--hook', 'have git call this after each checkout (post-checkout)')
    .action(async (branch: string | undefined, options: Options) => {
      const repository = await findRepository();
      const wanted = await branchOf(repository, branch);
      const connection = await connect();
      const file = forksFileOf(repository, connection.projectId);
      const settings = await settingsOf(file, options);
      if (options.hook === true) await installHook(repository);
      await deleteForksOfGone(file, connection);
      const { service, password } = await forkOf(file, connection, settings, wanted);
      const ca = await findCa(connection.apiUrl);
      const url = urlOf({ ...endpointOf(service), ca, password });
      await writeEnv(repository, settings.variable, url);
      say(`${service.name} is in ${settings.variable} of ${join(repository.top, ENV_FILE)}`);
    });
}

async function branchOf({ branch }: Repository, wanted: string | undefined): Promise<string> {
  if (wanted !== undefined) {
    if (await hasBranch(wanted)) return wanted;
    throw new Failure(`no branch ${wanted} is here: git switch -c ${wanted} makes it`, 'notFound');
  }
  if (branch !== null) return branch;
  throw new Failure('no branch is checked out: name one, or git switch to one', 'usage');
}

/** The options, and what was recorded of earlier ones. */
async function settingsOf(file: string, options: Options): Promise<BranchForks> {
  const { from, ttl, variable } = options;
  if (ttl !== undefined) secondsOf('--ttl', ttl);
  if (variable !== undefined && !/^[A-Za-z_][A-Za-z0-9_]*$/.test(variable))
    throw new Failure(
      `--variable: found ${variable}; allowed: letters, digits and _, not a digit first`,
      'usage',
    );
  const before = await readForks(file);
  const asked = { ...given('from', from), ...given('ttl', ttl), ...given('variable', variable) };
  const settings = { ...before, ...asked };
  if (settings.from === null)
    throw new Failure('--from: name the service to fork; it is kept for this repository', 'usage');
  return Object.keys(asked).length === 0
    ? settings
    : changeForks(file, (forks) => ({ ...forks, ...asked }));
}

/** Deletes the forks whose branches are gone. A fork that cannot be deleted stays recorded. */
async function deleteForksOfGone(file: string, connection: Connection): Promise<void> {
  for (const [branch, { service_id: id }] of Object.entries((await readForks(file)).forks)) {
    if (await hasBranch(branch)) continue;
    const why = await whyNotDeleted(connection, id);
    note(
      why === null
        ? `the branch ${branch} is gone, and so is its fork ${id}`
        : `the branch ${branch} is gone; its fork ${id} stays: ${why}`,
    );
    if (why === null) await changeForks(file, (all) => without(all, branch));
  }
}

/** Deletes a fork. @returns why it is still there; null: it is gone */
async function whyNotDeleted(connection: Connection, id: string): Promise<string | null> {
  try {
    const { environment } = subjectOf(await readService(connection, id));
    if (environment === 'PROD') return 'it is PROD by now';
    await connection.client.DELETE('/projects/{project_id}/services/{service_id}', {
      params: pathOf(connection, id),
    });
    return null;
  } catch (error) {
    if (isMissing(error)) return null;
    if (error instanceof HowdahError) return error.message;
    throw error;
  }
}

function without(all: BranchForks, branch: string): BranchForks {
  const { [branch]: _gone, ...forks } = all.forks;
  return { ...all, forks };
}

const isMissing = (error: unknown): boolean => error instanceof HowdahError && error.status === 404;

type Ready = { service: Service; password: string };

/** The fork of a branch, ready to be used: the one that there is, else a new one. */
async function forkOf(
  file: string,
  connection: Connection,
  settings: BranchForks,
  branch: string,
): Promise<Ready> {
  // A branch may be called constructor.
  const known = Object.hasOwn(settings.forks, branch) ? settings.forks[branch] : undefined;
  if (known !== undefined) {
    const found = await wake(connection, known, settings);
    if (found !== null) return { service: found, password: known.password };
    note(`the fork of the branch ${branch} is gone: another one is made`);
  }
  const { data: made, response } = await fork(connection, settings, branch);
  const { service_id, initial_password: password } = made ?? {};
  if (service_id === undefined || password === undefined)
    throw new Failure('the server answered without a service and its password');
  await changeForks(file, (all) => ({
    ...all,
    forks: { ...all.forks, [branch]: { service_id, password } },
  }));
  await follow(connection, response, { wait: true });
  return { service: await readService(connection, service_id), password };
}

/** A fork that runs, and whose lifetime begins again; null: it is gone. */
async function wake(
  connection: Connection,
  { service_id: id }: BranchFork,
  { ttl }: BranchForks,
): Promise<Service | null> {
  const params = pathOf(connection, id);
  try {
    const found = await readService(connection, id);
    if (ttl !== null)
      await connection.client.POST('/projects/{project_id}/services/{service_id}/setExpiry', {
        params,
        body: { ttl_seconds: secondsOf('--ttl', ttl) },
      });
    if (found.status === 'PAUSED') {
      const { response } = await connection.client.POST(
        '/projects/{project_id}/services/{service_id}/start',
        { params },
      );
      await follow(connection, response, { wait: true });
    } else await followService(connection, id);
    return await readService(connection, id);
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
}

/** Forks under the first name that is free: two clones of a repository have forks of their own. */
async function fork(
  connection: Connection,
  { from, ttl }: BranchForks,
  branch: string,
): Promise<{ data?: Service; response: Response }> {
  const parent = await findService(connection, from ?? '');
  const path = pathOf(connection, parent.service_id);
  for (let number = 1; ; number += 1) {
    const body: Schemas['ForkService'] = {
      fork_strategy: 'NOW',
      name: nameOf(parent.name, branch, number),
      unique_name: true,
      ...given('ttl_seconds', ttl === null ? undefined : secondsOf('--ttl', ttl)),
    };
    try {
      return await connection.client.POST(
        '/projects/{project_id}/services/{service_id}/forkService',
        {
          params: path,
          body,
        },
      );
    } catch (error) {
      const isUsed = error instanceof HowdahError && error.code === 'CONFLICT';
      if (!isUsed || number === MOST_NAMES) throw error;
    }
  }
}

/** `orders@feature/cart`, and with a number where that is in use. */
function nameOf(parent: string, branch: string, number: number): string {
  const suffix = number === 1 ? '' : `-${number}`;
  const characters = [...`${parent}@${branch}`];
  return `${characters.slice(0, NAME_MAX_CHARACTERS - suffix.length).join('')}${suffix}`;
}

async function writeEnv({ top }: Repository, variable: string, url: string): Promise<void> {
  const file = join(top, ENV_FILE);
  const before = (await readIfThere(file)) ?? '';
  // The mode counts for a new file only: the URL has a password.
  await writeFile(file, withVariable(before, variable, url), { mode: 0o600 });
  if ((await git('-C', top, 'check-ignore', '--quiet', ENV_FILE)) === null)
    note(`git does not ignore ${ENV_FILE}, which has a password: add it to .gitignore`);
}

const HOOK = 'post-checkout';

/** @throws Failure conflict where another hook is there */
async function installHook({ top }: Repository): Promise<void> {
  const path = await git('-C', top, 'rev-parse', '--path-format=absolute', '--git-path', 'hooks');
  if (path === null) throw new Failure('--hook: git rev-parse --git-path hooks names no directory');
  const file = join(path, HOOK);
  const call = `[ "$3" = 1 ] && ${ownCommand(ROOT, process.env['PATH'] ?? '')} checkout || true`;
  const before = await readIfThere(file);
  if (before?.includes(call) === true) return;
  if (before !== null)
    throw new Failure(
      `--hook: ${file} is there already; add this line to it:\n  ${call}`,
      'conflict',
    );
  await mkdir(path, { recursive: true });
  await writeFile(file, `#!/bin/sh\n# A fork of the database for each branch.\n${call}\n`);
  await chmod(file, 0o755);
  note(`${file} calls howdah checkout after each checkout`);
}
