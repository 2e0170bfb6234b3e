/** Shared by the commands that change services: the call, the wait, and the output. */
import { DryRunError, type HowdahClient, type Schemas } from '@howdah/client';
import { ENVIRONMENTS } from '@howdah/contract/types';
import type { Action } from '@howdah/contract/actions';
import { permissionOfAction, subjectOf } from '@howdah/contract/permissions';
import {
  countOf,
  given,
  oneOf,
  type Confirming,
  type Destroying,
  type Waiting,
} from '../command.ts';
import { asks, confirmAction } from '../confirm.ts';
import { connect, findCa, type Connection } from '../connection.ts';
import { findService, pathOf, readService } from '../find.ts';
import { follow } from '../follow.ts';
import { namesOfService } from '../names.ts';
import { isForPrograms, show, showAs, type Format } from '../output.ts';
import { refuseBeforeAsking } from '../permission.ts';
import { SERVICE_NOUN, serviceView } from '../views.ts';

type OfService = ReturnType<typeof pathOf> & { query?: { confirm?: string } };
/** A call that changes a service. */
export type Call = (
  client: HowdahClient,
  params: OfService,
) => Promise<{ data?: unknown; response: Response }>;

export const CHANGES = ['output', 'dryRun', 'wait'] as const;
/** The options of commands that make a service. */
export const CREATES = [...CHANGES, 'again', 'force'] as const;
/** The options of changes that a PROD service is protected from. */
export const PROTECTED_CHANGES = [...CHANGES, 'confirm'] as const;

export type Size = {
  cpuMillis?: string;
  memoryGbs?: string;
  storageGb?: string;
  cpuBound?: boolean;
  force?: true;
};

/** Changes a service; for a PROD one, after its name was repeated where the action needs that. */
export async function changeFound(
  wanted: string,
  action: Action,
  options: Waiting & Confirming,
  call: Call,
): Promise<void> {
  const connection = await connect(options);
  await changeProtected(connection, await findService(connection, wanted), action, options, call);
}

export async function changeProtected(
  connection: Connection,
  found: Schemas['Service'],
  action: Action,
  options: Waiting & Confirming,
  call: Call,
): Promise<void> {
  const confirmed = await confirmService(connection, found, action, options);
  await change(connection, found.service_id, options, (client, { path }) =>
    call(client, { path, query: given('confirm', confirmed) }),
  );
}

/**
 * @param sayMore what a user reads before a question
 * @returns the name that was given, where one was asked for
 * @throws Failure
 */
export async function confirmService(
  connection: Connection,
  found: Schemas['Service'],
  action: Action,
  options: Confirming & Destroying,
  sayMore?: () => Promise<void>,
): Promise<string | undefined> {
  const { service_id: id, name } = found;
  const subject = subjectOf(found);
  await refuseBeforeAsking(connection, options, permissionOfAction(action), subject);
  if (asks(options)) await sayMore?.();
  return confirmAction(action, { id, name, environment: subject.environment }, options);
}

/** Asks the API, by a dry run, what a change of a service takes or brings; '': it says nothing. */
export async function readNote(
  id: string,
  call: (client: HowdahClient, params: ReturnType<typeof pathOf>) => Promise<unknown>,
): Promise<string> {
  const connection = await connect({ dryRun: true });
  try {
    await call(connection.client, pathOf(connection, id));
  } catch (error) {
    if (error instanceof DryRunError) return error.answer.note ?? '';
    throw error;
  }
  return '';
}

/** Changes a service, waits for the operation, and prints the service. */
export async function change(
  connection: Connection,
  id: string,
  options: Waiting,
  call: Call,
): Promise<void> {
  const { data, response } = await call(connection.client, pathOf(connection, id));
  await follow(connection, response, options);
  await showChangedService(connection, options.output, data, id);
}

/** Prints the API's answer to a change, or for people the service as it is now. */
export async function showChangedService(
  connection: Connection,
  format: Format,
  answer: unknown,
  id: string,
): Promise<void> {
  if (isForPrograms(format)) await showAs(format, answer, SERVICE_NOUN, () => undefined);
  else await showService(connection, format, await readService(connection, id));
}

/** Prints a service, with the names of what it refers to. */
export async function showService(
  connection: Connection,
  format: Format,
  service: Schemas['Service'],
): Promise<void> {
  const names = await namesOfService(connection, format, service);
  await show(format, service, serviceView(await findCa(connection.apiUrl), names));
}

export function sizeOf({ cpuMillis, memoryGbs, storageGb, cpuBound, force }: Size) {
  return {
    ...given('force', force),
    ...given('cpu_millis', cpuMillis),
    ...given('memory_gbs', memoryGbs),
    ...given('cpu_bound', cpuBound),
    ...given(
      'storage_gb',
      storageGb === undefined ? undefined : countOf('--storage-gb', storageGb),
    ),
  };
}

export function environmentOf(tag: string | undefined) {
  return tag === undefined ? undefined : oneOf('--environment', ENVIRONMENTS, tag);
}
