/** Whether a service can move to another region. */
import { DATABASE_NAME } from '@howdah/contract';
import type { MovedData, MoveTarget } from '../../engine/moves.ts';
import type { PostgresCapability } from '../../engine/engine.ts';
import type { ServiceRow } from './row.ts';

/** The facts of a service that a move depends on. */
export type Moving = Pick<
  ServiceRow,
  | 'auto_suspend_seconds'
  | 'has_gateway'
  | 'host'
  | 'pooler'
  | 'preload'
  | 'read_replica_sets'
  | 'storage_gb'
  | 'vpc_id'
>;

/** The part of a volume that WAL and temporary files need beside the data. */
const FREE_PART = 0.1;

/**
 * Everything that is in the way of a move, each with what removes it; none: the service can move.
 *
 * @param postgres what the target has for services of its type and version
 */
export function whyNotMoved(
  service: Moving,
  postgres: PostgresCapability,
  data: MovedData,
  target: MoveTarget,
): string[] {
  return [
    ...('missing' in postgres ? [postgres.missing] : []),
    ...reasonsOfService(service),
    ...when(
      target.place === 'cluster' && isLoopback(service.host),
      `its endpoint is at ${service.host}, where no pod reaches it; its operator must set ` +
        'HOWDAH_HOST, or HOWDAH_PUBLIC_HOST, to an address of this machine',
    ),
    ...reasonsOfData(data, target),
    ...reasonsOfExtensions(postgres, data, target),
    ...reasonsOfSize(service, data),
    ...named(
      target.missing,
      'the target lacks',
      target.place === 'cluster'
        ? 'which its operator must add first (howdah region doctor)'
        : 'which its operator must install first: apt-get install postgresql, then restart Howdah',
    ),
  ];
}

function reasonsOfService({
  pooler,
  preload,
  read_replica_sets: sets,
  has_gateway: hasGateway,
  vpc_id: vpc,
  auto_suspend_seconds: suspend,
}: Moving): string[] {
  return [
    ...when(sets.length > 0, 'it has read replica sets, which would stay; delete them first'),
    ...when(
      hasGateway,
      'it has replicas, or had some, which do not move; fork it, and move the fork',
    ),
    ...when(
      suspend !== null,
      'it may fall asleep; set auto_suspend_seconds to null first (setAutoSuspend)',
    ),
    ...when(pooler, 'it has a connection pooler; disable it first'),
    ...when(vpc !== null, 'it is in a VPC, which is a network of its region; detach it first'),
    ...named(
      preload,
      'it loads the libraries of',
      'which no server there loads; disable them first',
    ),
  ];
}

function reasonsOfData(data: MovedData, target: MoveTarget): string[] {
  const others = target.architectures.filter((one) => one !== data.architecture);
  const taken = data.roles.filter((one) => target.ownRoles.includes(one));
  return [
    ...named(
      others,
      `its data is of ${data.architecture}, and machines of the target are of`,
      'which read it in another way; copy it with pg_dump, or remove those machines',
    ),
    ...named(taken, 'it has the roles', 'which the target makes for itself; rename them first'),
    ...named(
      data.readOnlyRoles,
      'it has read-only roles, by a setting that nothing enforces there:',
      'which could write there; drop them first',
    ),
    ...named(
      data.systemSettings,
      'it has the settings of ALTER SYSTEM',
      'which would hold there too; reset them first',
    ),
    ...when(
      !data.hasDatabase,
      `it has no database "${DATABASE_NAME}", which every region looks for; create it first`,
    ),
    ...named(data.slots, 'it has the logical slots', 'which a copy has not; drop them first'),
    ...named(
      data.unreadDatabases,
      'it has the databases',
      target.place === 'cluster'
        ? 'which cannot be examined: they accept no connections, or are too many'
        : 'which cannot be examined: they are too many, or accept no connections of ' +
            'howdah_control; grant it CONNECT, and detach an allow list first',
    ),
    ...named(
      data.unlogged,
      'it has the unlogged tables or sequences',
      'whose rows a copy has not; make them logged first (ALTER TABLE … SET LOGGED)',
    ),
    ...named(
      data.collations,
      'it has indexes or partitions with the collations',
      'whose order depends on the version of glibc or ICU, which can differ there; use COLLATE "C"',
    ),
  ];
}

/** Data of an extension needs its library, in the same version. */
function reasonsOfExtensions(
  postgres: PostgresCapability,
  { extensions }: MovedData,
  target: MoveTarget,
): string[] {
  const { modules, extensions: ofImages, versions } = target;
  const had = 'major' in postgres ? (ofImages[postgres.major] ?? []) : [];
  const others = extensions.filter(({ name }) => !modules.includes(name));
  const [found, missing] = [others.filter(isIn(had)), others.filter((one) => !isIn(had)(one))];
  const differ = found.filter(
    ({ name, version }) =>
      versions?.some((one) => one.name === name && one.version === version) === false,
  );
  return [
    ...named(
      [...new Set(missing.map(({ name }) => name))],
      'it has the extensions',
      target.place === 'cluster'
        ? 'which its image there is not said to have; drop them first, or its operator must name ' +
            'an image that has them (howdah region set-images)'
        : 'which that machine does not have; drop them first, or its operator must install them',
    ),
    ...named(
      differ.map(({ name, version }) => `${name} ${version}`),
      'it has the extensions',
      target.place === 'cluster'
        ? 'and the image of the copy does not have that version; update them first (ALTER ' +
            'EXTENSION), or its operator must name an image that has it (howdah region set-images)'
        : 'and that machine does not have that version; update them first (ALTER EXTENSION), or ' +
            'its operator must install it',
    ),
  ];
}

const isIn =
  (names: readonly string[]) =>
  ({ name }: { name: string }): boolean =>
    names.includes(name);

function reasonsOfSize({ storage_gb: storageGb }: Moving, { bytes }: MovedData): string[] {
  const neededGb = Math.ceil(bytes / (1 - FREE_PART) / 1e9);
  return when(
    neededGb > storageGb,
    `its data and WAL need a volume of ${neededGb} GB, and it would get ${storageGb} GB; ` +
      'resize it first (storage_gb)',
  );
}

const isLoopback = (host: string): boolean =>
  host === 'localhost' || host === '::1' || host.startsWith('127.');

const when = (holds: boolean, reason: string): string[] => (holds ? [reason] : []);

/** Tenants choose names, and how many there are. */
const NAMES_SHOWN = 5;

/** A reason with names; none if there are no names. */
function named(names: readonly string[], before: string, after: string): string[] {
  if (names.length === 0) return [];
  const shown = names.slice(0, NAMES_SHOWN).map((name) => JSON.stringify(name.slice(0, 64)));
  const more = names.length > NAMES_SHOWN ? ` and ${names.length - NAMES_SHOWN} more` : '';
  return [`${before} ${shown.join(', ')}${more}, ${after}`];
}
