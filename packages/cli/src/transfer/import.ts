/** `howdah import` of a live database: begins it, continues it, and ends it. */
import { simulationNote } from '@howdah/contract/simulated';
import type { Schemas } from '@howdah/client';
import type { Client } from 'pg';
import { quotedWord } from '@howdah/contract/shell';
import { ADDONS, EXTENSION_OF_ADDON, whyKept, type Addon } from '@howdah/contract/types';
import { type Connection, answered } from '../connection.ts';
import { readRelations } from './catalog.ts';
import { examineSource, examineTarget, type Source } from './checks.ts';
import { copyAll, SCHEMA_OPTIONS, SchemaRefused, summaryOf } from './clone.ts';
import {
  endpointOfService,
  nameOf,
  open,
  variablesOf,
  withPassword,
  type Endpoint,
} from './endpoint.ts';
import { Failure } from '../exit.ts';
import { finishCopy } from './finish.ts';
import { readService, ofProject } from '../find.ts';
import { cutOver, downtimeOf, endFollowing, followSource, takeOver } from './follow.ts';
import { note, paintNote } from '../output.ts';
import { findProgram, outputOf } from './programs.ts';
import { noteRoles } from './files.ts';
import type { InTheWay, Script } from './script/examine.ts';
import { dropSlot, endOthers, readLag, readProgress, tryLock, type Sessions } from './slot.ts';
import { applicationOf, loadState, removeState, saveState, type State } from './state.ts';
import { listed, step, sizeOf } from './steps.ts';

const CHECKING = 'howdah import';

/** A source that was examined, before there is a service. */
export type Checked = { endpoint: Endpoint; source: Source };

/**
 * Makes all checks that need no service.
 *
 * @param problemsOf what else is in the way, by the extensions of the source and its version
 * @throws Failure with everything that is in the way
 */
export async function checkSource(
  from: Endpoint,
  follow: boolean,
  problemsOf: (source: Source) => Promise<InTheWay[]>,
): Promise<Checked> {
  const endpoint = await withPassword(from, CHECKING);
  const source = await step('check the source', async (report) => {
    const client = await open(endpoint, CHECKING);
    try {
      const found = await examineSource(client, follow, (major) => schemaOf(endpoint, major));
      const { server, tables, extensions } = found;
      report(
        `PostgreSQL ${found.major}, ${tables.length} tables, ${sizeOf(server.bytes)}, ` +
          `${server.largeObjects} large objects, extensions: ` +
          (extensions.length === 0 ? 'none' : listed(extensions.map(({ name }) => name))),
      );
      return found;
    } finally {
      await client.end();
    }
  });
  for (const text of source.notes) note(`${paintNote.yellow('note')} not imported: ${text}`);
  const problems = [...source.problems, ...(await problemsOf(source))];
  if (problems.length > 0) refuse(`the source${follow ? ' with --follow' : ''}`, problems);
  return { endpoint, source };
}

/** The schema that an import would restore, as SQL. */
async function schemaOf(endpoint: Endpoint, major: number): Promise<Script> {
  await findProgram('pg_restore', major);
  const program = await findProgram('pg_dump', major);
  const variables = variablesOf(endpoint, CHECKING);
  return outputOf(program, [...SCHEMA_OPTIONS, '--no-owner'], variables);
}

/** Imports into a service, and follows the source if that was asked for. @throws Failure */
export async function importInto(
  connection: Connection,
  service: Schemas['Service'],
  password: string | null,
  { endpoint, source }: Checked,
  { follow, jobs }: { follow: boolean; jobs: number },
): Promise<void> {
  const simulated = simulationNote(service);
  if (simulated !== null) throw new Failure(`${service.name}: ${simulated}`, 'usage');
  const to = await endpointOfService(connection, service, password);
  const target = await withPassword(to, CHECKING);
  const state: State = {
    edition: 1,
    service: { id: service.service_id, name: service.name },
    source: endpoint,
    target,
    follow,
    jobs,
    stage: 'copy',
    begun: false,
    major: source.major,
    copied: [],
    hypertables: [],
    keys: [],
    skipped: [],
  };
  await checkService(service, target, source);
  await saveState(state);
  await guarded(state, () => run(state, source), password !== null);
  noteRoles(source.roles);
}

/** @throws Failure */
async function checkService(
  service: Schemas['Service'],
  target: Endpoint,
  source: Source,
): Promise<void> {
  const client = await open(target, CHECKING);
  try {
    await step('check the service', async () => {
      await requireEmpty(client, service.name);
      await examineTarget(client, source, storageOf(service));
    });
  } finally {
    await client.end();
  }
}

/** The storage quota in gigabytes; null: there is none. */
function storageOf({ resources }: Schemas['Service']): number | null {
  return resources[0]?.spec.storage_gb ?? null;
}

/** An import never changes what somebody else has made. @throws Failure conflict */
export async function requireEmpty(client: Client, name: string): Promise<void> {
  const found = await readRelations(client);
  const { rows } = await client.query('select oid from pg_catalog.pg_largeobject_metadata limit 1');
  if (found.length > 0 || rows.length > 0)
    throw new Failure(
      `${name} is not empty: ` +
        `${found.length === 0 ? 'it has large objects' : listed(found)}; imports need an ` +
        'empty service (--name creates one)',
      'conflict',
    );
}

/** Continues an import that was interrupted. @throws Failure */
export async function resumeImport(connection: Connection, wanted: Wanted): Promise<void> {
  const state = await loadState(wanted);
  await requireService(connection, state);
  await guarded(state, () => run(state, null));
}

type Wanted = { id: string; name: string };

/** The password is known here only; a deleted service needs no import. */
async function requireService(connection: Connection, { service }: State): Promise<void> {
  await readService(connection, service.id);
}

/**
 * Says in every failure how to go on.
 *
 * @param isNew whether the service was created for this import: if it cannot have the schema,
 *   nothing is kept
 */
async function guarded(state: State, work: () => Promise<void>, isNew = false): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (isNew && error instanceof SchemaRefused) {
      if (state.follow) await freeSource(state);
      await removeState(state);
      throw error;
    }
    const name = quotedWord(state.service.name);
    note(
      `The service ${state.service.name} (${state.service.id}) stays as it is. When the ` +
        `cause is gone: howdah import resume ${name}. To give up: howdah import cancel ` +
        `${name}, and howdah service delete ${name}`,
    );
    throw error;
  }
}

/** @param examined the source; null: it is examined again, if that is needed */
async function run(begun: State, examined: Source | null): Promise<void> {
  await withSessions(begun, async (sessions) => {
    if (!(await tryLock(sessions.target)))
      throw new Failure(`another howdah import works on ${begun.service.name}`, 'conflict');
    await endLeftSessions(begun, sessions);
    let state = begun;
    if (state.stage === 'copy') {
      const source = examined ?? (await examineAgain(state, sessions.source));
      // A session that was killed may have begun more than it has written down.
      await saveState({ ...state, begun: true });
      state = await copyAll(state, source, sessions);
      note(summaryOf(state, source.server.bytes));
    }
    if (state.stage === 'finish') {
      await finishCopy(state, sessions);
      if (!state.follow) {
        await removeState(state);
        note(
          `${paintNote.green('✓')} ${state.service.name} has what the source had: rows and ` +
            'checksums of every table are equal',
        );
        return;
      }
      state = { ...state, stage: 'follow' };
      await saveState(state);
    }
    if ((await readProgress(sessions.target)) === null) return endFollowing(state, sessions);
    await followSource(state, sessions);
  });
}

/** The source may have got something since that is in the way. */
async function examineAgain(state: State, source: Client): Promise<Source> {
  const found = await examineSource(source, state.follow, (major) => schemaOf(state.source, major));
  if (found.problems.length > 0) refuse('the source', found.problems);
  return found;
}

/** The programs and sessions of a process that was killed may still work. */
async function endLeftSessions(state: State, { source, target }: Sessions): Promise<void> {
  await endOthers(source, applicationOf(state));
  await endOthers(target, applicationOf(state));
}

async function withSessions<T>(state: State, work: (sessions: Sessions) => Promise<T>): Promise<T> {
  const application = applicationOf(state);
  const source = await open(state.source, application);
  try {
    const target = await open(state.target, application);
    try {
      return await work({ source, target });
    } finally {
      await target.end().catch(() => undefined);
    }
  } finally {
    await source.end().catch(() => undefined);
  }
}

/** `howdah import cutover` @throws Failure */
export async function cutoverImport(wanted: Wanted, isCompared: boolean): Promise<void> {
  const state = await loadState(wanted);
  if (state.stage !== 'follow')
    throw new Failure(
      `the import into ${wanted.name} does not follow its source: howdah import resume ` +
        quotedWord(wanted.name),
      'conflict',
    );
  await guarded(state, () => cutOverAndEnd(state, isCompared));
  note(
    `${paintNote.green('✓')} ${wanted.name} accepts the writes from now on; the source is ` +
      'not changed, and no longer followed',
  );
}

async function cutOverAndEnd(state: State, isCompared: boolean): Promise<void> {
  await withSessions(state, async (sessions) => {
    await takeOver(state, sessions.target);
    await endLeftSessions(state, sessions);
    if ((await readProgress(sessions.target)) !== null) {
      const lock = await open(state.source, `${applicationOf(state)} cutover`);
      try {
        note(downtimeOf(await cutOver(state, sessions, lock, isCompared)));
      } finally {
        await lock.end().catch(() => undefined);
      }
    }
    await endFollowing(state, sessions);
  });
}

/** `howdah import cancel` @throws Failure */
export async function cancelImport(wanted: Wanted): Promise<void> {
  const state = await loadState(wanted);
  if (state.follow) {
    const isThere = await open(state.target, applicationOf(state)).then(
      (client) => client.end().then(() => true),
      () => false,
    );
    if (isThere)
      await withSessions(state, async (sessions) => {
        await takeOver(state, sessions.target);
        await endLeftSessions(state, sessions);
        await endFollowing(state, sessions);
      });
    else await freeSource(state);
  }
  await removeState(state);
  note(
    'The import is cancelled, and the source keeps nothing of it. The service stays: howdah ' +
      `service delete ${quotedWord(wanted.name)}`,
  );
}

/** The service is stopped or deleted; its source must not keep WAL for it. */
async function freeSource(state: State): Promise<void> {
  const source = await open(state.source, applicationOf(state));
  try {
    await dropSlot(state, source);
  } finally {
    await source.end().catch(() => undefined);
  }
}

/** How far an import is. */
export type Report = {
  service_id: string;
  name: string;
  source: string;
  stage: State['stage'];
  follow: boolean;
  running: boolean;
  behind_bytes: number | null;
  kept_bytes: number | null;
};

/** `howdah import status` @throws Failure */
export async function reportImport(wanted: Wanted): Promise<Report> {
  const state = await loadState(wanted);
  return withSessions(state, async ({ source, target }) => {
    const running = !(await tryLock(target));
    const lag = state.stage === 'follow' ? await readLag(source, state) : null;
    return {
      service_id: state.service.id,
      name: state.service.name,
      source: nameOf(state.source),
      stage: state.stage,
      follow: state.follow,
      running,
      behind_bytes: lag?.behindBytes ?? null,
      kept_bytes: lag?.keptBytes ?? null,
    };
  });
}

// Which extensions a service can have, before there is one.

type Offer = Pick<Schemas['Extension'], 'name' | 'kind' | 'allowed' | 'reason' | 'statement'> & {
  state?: Schemas['ServiceExtension']['state'];
};

/**
 * Extensions that a service has or can have. `major`: of its PostgreSQL; null: the service itself
 * says it.
 */
export type Offers = { major: number | null; extensions: readonly Offer[] };

/** The add-ons whose extensions are asked for. */
export function addonsFor(extensions: Iterable<string>): Addon[] {
  const names = new Set(extensions);
  return ADDONS.filter((addon) => names.has(EXTENSION_OF_ADDON[addon]));
}

/**
 * @param serviceId null: of a service that is created with these add-ons
 * @throws Failure
 */
export async function readOffers(
  connection: Connection,
  serviceId: string | null,
  addons: readonly Addon[],
): Promise<Offers> {
  const { path } = ofProject(connection);
  if (serviceId !== null) {
    const found = connection.client.GET('/projects/{project_id}/services/{service_id}/extensions', {
      params: { path: { ...path, service_id: serviceId } },
    });
    return { major: null, extensions: await answered(found) };
  }
  const all = await answered(
    connection.client.GET('/projects/{project_id}/extensions', { params: { path } }),
  );
  const names = addons.map((addon) => EXTENSION_OF_ADDON[addon]);
  const has = (extensions: readonly Offer[], wanted: string): boolean =>
    extensions.some(
      ({ name, kind, allowed }) => name === wanted && kind === 'extension' && allowed,
    );
  const place =
    all.find(({ extensions }) => names.every((name) => has(extensions, name))) ?? all[0];
  if (place === undefined) throw new Failure('the region has no PostgreSQL', 'unavailableHere');
  return { major: Number.parseInt(place.postgres_version, 10), extensions: place.extensions };
}

/** The extensions that the service cannot have, or must have before an import. */
export function problemsOfExtensions(
  wanted: Iterable<readonly [name: string, line: number]>,
  { extensions, major }: Offers,
  service: string | null,
): InTheWay[] {
  return [...wanted].flatMap(([name, line]): InTheWay[] => {
    const isInPlace = service === null && whyKept(name, addonsFor([name])) !== null;
    const offer = extensions.find((one) => one.name === name && one.kind === 'extension');
    const what = `the extension ${name}`;
    if (offer === undefined)
      return [
        {
          line,
          what: `${what}: the PostgreSQL ${major ?? 'of the service'} here does not have it`,
          remedy: `the operator adds it (howdah extension install ${name}), or remove it`,
        },
      ];
    if (!offer.allowed) return [{ line, what: `${what}: ${offer.reason}`, remedy: 'remove it' }];
    if (offer.state === 'enabled' || offer.statement !== undefined || isInPlace) return [];
    return [
      {
        line,
        what: `${what} is created by a call only`,
        remedy:
          service === null
            ? `create a service, howdah extension enable SERVICE ${name}, and import --into it`
            : `howdah extension enable ${service} ${name}`,
      },
    ];
  });
}

/** Says all that is in the way, at once. */
export function refuse(what: string, problems: readonly InTheWay[]): never {
  const inOrder = problems.toSorted((a, b) => a.line - b.line);
  const lines = inOrder.map(
    ({ line, what: found, remedy }) => `  ${line > 0 ? `line ${line}: ` : ''}${found}; ${remedy}`,
  );
  throw new Failure(`${what} cannot be imported; nothing was done:\n${lines.join('\n')}`, 'usage');
}
