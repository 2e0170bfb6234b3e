/** Shared by the commands that change services: the call, the wait, and the output. */
import type { HowdahClient } from '@howdah/client';
import { ENVIRONMENTS } from '@howdah/contract/types';
import { countOf, given, oneOf, type Waiting } from '../command.ts';
import { connect, findCa, type Connection } from '../connection.ts';
import { findService, pathOf, readService } from '../find.ts';
import { follow } from '../follow.ts';
import { showChanged } from '../output.ts';
import { serviceView } from '../views.ts';

type OfService = ReturnType<typeof pathOf>;
/** A call that changes a service. */
export type Call = (
  client: HowdahClient,
  params: OfService,
) => Promise<{ data?: unknown; response: Response }>;

export const CHANGES = ['output', 'dryRun', 'wait'] as const;

export type Size = { cpuMillis?: string; memoryGbs?: string; storageGb?: string };

export async function changeFound(wanted: string, options: Waiting, call: Call): Promise<void> {
  const connection = await connect(options);
  await change(connection, (await findService(connection, wanted)).service_id, options, call);
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
  await showChanged(options.output, data, serviceView(await findCa(connection.apiUrl)), () =>
    readService(connection, id),
  );
}

export function sizeOf({ cpuMillis, memoryGbs, storageGb }: Size) {
  return {
    ...given('cpu_millis', cpuMillis),
    ...given('memory_gbs', memoryGbs),
    ...given(
      'storage_gb',
      storageGb === undefined ? undefined : countOf('--storage-gb', storageGb),
    ),
  };
}

export function environmentOf(tag: string | undefined) {
  return tag === undefined ? undefined : oneOf('--environment', ENVIRONMENTS, tag);
}
