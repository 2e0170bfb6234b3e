/** `howdah usage`: memory, CPU and disk of the services of a project. */
import type { Schemas } from '@howdah/client';
import { largestFirst } from '@howdah/contract/usage';
import { Option, type Command } from 'commander';
import { verb, type Printing } from '../command.ts';
import { answered, connect } from '../connection.ts';
import { findProject } from '../find.ts';
import { isForPrograms, note, showList, type View } from '../output.ts';

type ServiceUsage = Schemas['ServiceUsage'];

/** The things that services can be added up by. */
const GROUPINGS = ['project', 'key', 'parent'] as const;
type Grouping = (typeof GROUPINGS)[number];

export function addUsage(program: Command): void {
  verb(program, 'usage [project]', {
    does:
      'Show what the services of a project take: memory, CPU, and disk of their own and shared ' +
      'with forks and snapshots.',
    example: 'howdah usage --why',
    takes: ['output'],
  })
    .option('--why', 'each service, the largest first, with the reason and what would make it less')
    .addOption(
      new Option('--by <what>', 'what to add up by: the project, the key, or the parent of forks')
        .choices(GROUPINGS)
        .default('project')
        .conflicts('why'),
    )
    .action(
      async (wanted: string | undefined, options: Printing & { why?: true; by: Grouping }) => {
        const { output, why, by } = options;
        const connection = await connect();
        const params = { path: { project_id: await findProject(connection, wanted) } };
        if (!isForPrograms(output)) note('measuring the disk of each service …');
        const all = await answered(
          connection.client.GET('/projects/{project_id}/usage', { params }),
        );
        const names = new Map(all.map(({ service_id: id, name }) => [id, name]));
        // Programs get the answer of the API, whatever it is added up by.
        if (why === true || isForPrograms(output))
          await showList(
            output,
            all.toSorted(largestFirst),
            serviceView((id) => names.get(id) ?? id),
          );
        else await showList(output, groupsOf(all, by, names), GROUP_VIEW);
      },
    );
}

const MB = 1_000_000;
const UNITS = ['MB', 'GB', 'TB'];

/** Megabytes as people read them; empty: not measured. */
function size(mb: number | null): string {
  if (mb === null) return '';
  const power = mb < 1000 ? 0 : mb < MB ? 1 : 2;
  const value = mb / 1000 ** power;
  return `${power > 0 && value < 10 ? value.toFixed(1) : Math.round(value)} ${UNITS[power] ?? ''}`;
}

const cores = (milli: number | null): string => (milli === null ? '' : String(milli / 1000));

const serviceView = (nameOf: (id: string) => string): View<ServiceUsage> => ({
  noun: 'service',
  id: ({ service_id: id }) => id,
  columns: [
    ['NAME', ({ name }) => name],
    ['FORK OF', ({ forked_from: id }) => (id === undefined ? '' : nameOf(id))],
    ['KEY', keyOf],
    ['CPU IN USE', ({ milli_cpu: milli }) => cores(milli)],
    ['MEMORY', ({ memory_mb: mb }) => size(mb)],
    ['OWN DISK', ({ own_mb: mb }) => size(mb)],
    ['SHARED DISK', ({ shared_mb: mb }) => size(mb)],
    ['BACKUPS', ({ backups_mb: mb }) => size(mb)],
    ['WHY', ({ why }) => why],
  ],
});

function keyOf({ key_name: name, created_by: key }: ServiceUsage): string {
  return name ?? key ?? '';
}

/** The sums of several services. */
type Group = Readonly<{
  name: string;
  services: number;
  running: number;
  milli_cpu: number;
  memory_mb: number;
  own_mb: number;
  backups_mb: number;
}>;

const GROUP_VIEW: View<Group> = {
  noun: 'usage',
  columns: [
    ['OF', ({ name }) => name],
    ['SERVICES', ({ services }) => String(services)],
    ['RUNNING', ({ running }) => String(running)],
    ['CPU IN USE', ({ milli_cpu: milli }) => cores(milli)],
    ['MEMORY', ({ memory_mb: mb }) => size(mb)],
    ['OWN DISK', ({ own_mb: mb }) => size(mb)],
    ['BACKUPS', ({ backups_mb: mb }) => size(mb)],
  ],
};

function groupsOf(
  all: readonly ServiceUsage[],
  by: Grouping,
  names: ReadonlyMap<string, string>,
): Group[] {
  const nameOf = (one: ServiceUsage): string => {
    switch (by) {
      case 'project':
        return 'all services';
      case 'key':
        return keyOf(one) || 'no key';
      case 'parent': {
        const parent = one.forked_from ?? one.read_replicas_of;
        return parent === undefined ? 'no forks' : (names.get(parent) ?? parent);
      }
    }
  };
  const sum = (ones: readonly ServiceUsage[], of: (one: ServiceUsage) => number | null): number =>
    ones.reduce((total, one) => total + (of(one) ?? 0), 0);
  return [...new Set(all.map(nameOf))]
    .map((name) => ({ name, ones: all.filter((one) => nameOf(one) === name) }))
    .map(({ name, ones }) => ({
      name,
      services: ones.length,
      running: ones.filter(({ memory_mb: mb }) => mb !== null).length,
      milli_cpu: sum(ones, ({ milli_cpu: milli }) => milli),
      memory_mb: sum(ones, ({ memory_mb: mb }) => mb),
      own_mb: sum(ones, ({ own_mb: mb }) => mb),
      backups_mb: sum(ones, ({ backups_mb: mb }) => mb),
    }))
    .toSorted(largestFirst);
}
