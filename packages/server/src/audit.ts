/**
 * The invariants of an installation, checked: processes, ports, directories and limits on the one hand and records on the other,
 * both ways. Run by `howdah audit`, and after every test of the whole system.
 */
import { basename } from 'node:path';
import type { ClientConfig } from 'pg';
import { ID_LENGTH, IS_TRANSITIONAL } from '@howdah/contract';
import type { Config } from './config.ts';
import { takeInventory } from './engine/local/inventory.ts';
import { prepareMachine } from './engine/local/machine.ts';
import { storeConnection } from './engine/local/store-instance.ts';
import { readAuditRecords } from './store/audit.ts';

/** @returns a sentence for everything that is not as it must be; none: all is well */
export async function audit(config: Pick<Config, 'home' | 'databaseUrl'>): Promise<string[]> {
  const machine = await prepareMachine(config.home);
  const connection: ClientConfig = config.databaseUrl === null ? storeConnection(machine) : { connectionString: config.databaseUrl };
  const before = await readAuditRecords(connection);
  const found = await takeInventory(machine);
  const after = await readAuditRecords(connection);
  // What changed while it was looked at, or is on its way, is judged by the next audit.
  const settled = after.services.filter(
    (service) =>
      !IS_TRANSITIONAL[service.status] && before.services.some((earlier) => earlier.id === service.id && earlier.status === service.status),
  );
  const settledIds = new Set(settled.map(({ id }) => id));
  const knownIds = new Set([...before.services, ...after.services].map(({ id }) => id));
  const onTheirWay = new Set([...knownIds].filter((id) => !settledIds.has(id)));
  const running = settled.filter(({ status }) => status === 'READY');
  const paused = settled.filter(({ status }) => status === 'PAUSED');
  const unknown = (kind: string, ids: readonly string[]) =>
    ids.filter((id) => !knownIds.has(id)).map((id) => `${kind} of ${id}, of which there is no record`);
  const inBoth = (kind: string, ids: ReadonlySet<string>) => [
    ...running.filter(({ id }) => !ids.has(id)).map(({ id }) => `service ${id} is READY and has no ${kind}`),
    ...paused.filter(({ id }) => ids.has(id)).map(({ id }) => `service ${id} is PAUSED and has a ${kind}`),
  ];
  const listening = new Set(found.ports);
  const promised = new Set(after.services.map(({ port }) => port));
  return [
    ...after.contradictions.filter((text) => before.contradictions.includes(text)),
    ...unknown('directory', found.directories),
    ...unknown('process', found.processes),
    ...unknown('cgroup', found.groups),
    ...found.leftovers.filter((path) => !onTheirWay.has(basename(path).slice(0, ID_LENGTH))).map((path) => `left over: ${path}`),
    ...inBoth('process', new Set(found.processes)),
    ...settled.filter(({ id }) => !found.directories.includes(id)).map(({ id }) => `service ${id} has no directory`),
    ...running
      .filter(({ port }) => !listening.has(port))
      .map(({ id, port }) => `service ${id} is READY and nothing listens on its port ${port}`),
    ...paused
      .filter(({ port }) => listening.has(port))
      .map(({ id, port }) => `service ${id} is PAUSED and something listens on its port ${port}`),
    ...found.processPorts.filter((port) => !promised.has(port)).map((port) => `a server listens on port ${port}, which no record promises`),
    ...[...settledIds]
      .filter((id) => found.processes.filter((process) => process === id).length > 1)
      .map((id) => `service ${id} has more than one server`),
  ];
}
