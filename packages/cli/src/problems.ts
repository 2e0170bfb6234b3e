/** Problems of services and their remedies, printed to stderr beside the tables. */
import type { Schemas } from '@howdah/client';
import { answered, type Connection } from './connection.ts';
import { quotedWord } from '@howdah/contract/shell';
import { note, paintNote } from './output.ts';

type Service = Pick<
  Schemas['Service'],
  'service_id' | 'name' | 'status' | 'warnings' | 'region_code'
>;
type Operation = Pick<Schemas['Operation'], 'kind' | 'status' | 'error'>;

/** Prints the warnings of the regions that these services are in. */
async function noteRegions(
  { client, projectId }: Connection,
  services: readonly Service[],
): Promise<void> {
  const params = { path: { project_id: projectId } };
  const regions = await answered(client.GET('/projects/{project_id}/regions', { params }));
  const isShown = ({ code, aliases }: (typeof regions)[number]): boolean =>
    services.some(({ region_code: name }) => name === code || aliases.includes(name));
  for (const region of regions.filter(isShown))
    for (const { code, message } of region.warnings ?? [])
      note(`${paintNote.yellow('warning')} region ${region.code} ${code}: ${message}`);
}

/** Prints the warnings of regions and services, and why an UNSTABLE one is not READY. */
export async function noteProblems(
  connection: Connection,
  services: readonly Service[],
): Promise<void> {
  if (services.length > 0) await noteRegions(connection, services);
  for (const service of services) {
    for (const { code, message } of service.warnings ?? [])
      note(`${paintNote.yellow('warning')} ${service.name} ${code}: ${message}`);
    if (service.status === 'UNSTABLE') {
      const [problem, ...remedies] = problemOf(service, await lastOperations(connection, service));
      note(`${paintNote.red('problem')} ${problem}`);
      for (const remedy of remedies) note(`  ${remedy}`);
    }
  }
}

/** Newest first. */
async function lastOperations(
  { client, projectId }: Connection,
  { service_id }: Service,
): Promise<Operation[]> {
  const params = { path: { project_id: projectId }, query: { service_id, limit: '10' } };
  return answered(client.GET('/projects/{project_id}/operations', { params }));
}

/** The problem of an UNSTABLE service in words, and the commands that help. */
export function problemOf(
  { name, service_id: id }: Service,
  operations: readonly Operation[],
): [problem: string, ...remedies: string[]] {
  const found = operations.find(({ error }) => error !== undefined);
  const shown = quotedWord(name);
  const steps = `howdah service operations ${shown} shows its steps`;
  const log = `howdah logs ${shown} shows its server log`;
  if (found === undefined)
    return [`${name} (${id}) is UNSTABLE, and no operation gives a reason`, steps, log];
  const state =
    found.status === 'running'
      ? `${found.kind} is failing and is being tried again`
      : `${found.kind} failed`;
  return [`${name} (${id}) is UNSTABLE: ${state}: ${found.error}`, steps, log];
}
