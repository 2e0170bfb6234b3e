/** The kinds of services that a cluster can run, and the actions that it cannot do. */
import type { Addon } from '@howdah/contract';
import { extensionsOf } from '../../domain/postgres/extension-rules.ts';
import type {
  Capabilities,
  MajorCapability,
  Possibility,
  PostgresCapability,
  Room,
} from '../engine.ts';
import type { ObjectStore } from '../object-store.ts';
import type { RegionSettings } from './region/settings.ts';
import { poolerVersion } from './pooler/manifest.ts';

type Images = Pick<RegionSettings, 'code' | 'images' | 'extensions' | 'poolerImage'>;
type Settings = Images & Pick<RegionSettings, 'boundsCpu' | 'domain'>;

/** Whether a service with these add-ons can run here. @param major null: the newest */
export function supports(
  settings: Omit<Images, 'poolerImage'>,
  addons: readonly Addon[],
  major: number | null,
): PostgresCapability {
  const { code, images } = settings;
  const majors = majorsOf(settings, addons);
  const found = major === null ? majors[0] : majors.find((one) => one === major);
  if (found !== undefined) return { version: String(found), major: found };
  const extensions = extensionsOf(addons);
  const all = majorsOf(settings, []).join(', ');
  if (major !== null && images[major] === undefined)
    return { missing: `the region ${code} has no image of PostgreSQL ${major}; it has ${all}` };
  return {
    missing:
      `no image of PostgreSQL ${major ?? all} with ${extensions.join(' and ')} is named for the ` +
      `region ${code} (howdah region set-images)` +
      (majors.length === 0 ? '' : `; that of PostgreSQL ${majors.join(', ')} has it`),
  };
}

/** Those whose image has the extensions of add-ons, newest first. */
function majorsOf(
  { images, extensions }: Pick<Images, 'images' | 'extensions'>,
  addons: readonly Addon[],
): number[] {
  return Object.keys(images)
    .map(Number)
    .filter((major) => {
      const had = extensions[major] ?? [];
      return extensionsOf(addons).every((extension) => had.includes(extension));
    })
    .toSorted((a, b) => b - a);
}

/** How the past of services is kept. */
export type Keeping = Readonly<{
  /** Whether there is a class for snapshots of volumes. */
  snapshots: boolean;
  /** The object store of archived WAL; null: none is set, or the plugin for it is missing. */
  archive: ObjectStore | null;
}>;

/** @param room on the largest node; null: it is not known */
export function capabilitiesOf(
  settings: Settings,
  { snapshots, archive }: Keeping,
  room: Room | null,
): Capabilities {
  const typeOf = (addons: readonly Addon[]) => supports(settings, addons, null);
  const versionsOf = (addons: readonly Addon[]): MajorCapability[] =>
    majorsOf(settings, []).map((major) => ({ ...supports(settings, addons, major), major }));
  const addons = {
    TIMESCALEDB: ['time-series'],
    POSTGRES: [],
    VECTOR: ['ai'],
  } as const;
  const networks = settings.domain === null ? POSSIBLE : { possible: false, why: NO_NETWORKS };
  return {
    engine: 'kubernetes',
    types: {
      TIMESCALEDB: typeOf(addons.TIMESCALEDB),
      POSTGRES: typeOf(addons.POSTGRES),
      VECTOR: typeOf(addons.VECTOR),
    },
    versions: {
      TIMESCALEDB: versionsOf(addons.TIMESCALEDB),
      POSTGRES: versionsOf(addons.POSTGRES),
      VECTOR: versionsOf(addons.VECTOR),
    },
    pooler: { version: poolerVersion(settings.poolerImage) },
    gateway: { version: 'CloudNativePG', note: REPLICAS },
    offMachine: { missing: offMachineOf(archive) },
    archivesInStore: true,
    actions: {
      forkNow: POSSIBLE,
      forkPast: snapshots || archive !== null ? POSSIBLE : { possible: false, why: NO_PAST },
      reset: { possible: false, why: NO_RESET },
      enablePooler: POSSIBLE,
      setHA: POSSIBLE,
      switchover: POSSIBLE,
      drill: POSSIBLE,
      attachToVPC: networks,
      attachToAllowList: networks,
      verifyBackup:
        snapshots || archive !== null ? POSSIBLE : { possible: false, why: NO_VERIFICATION },
      runBackup: snapshots || archive !== null ? POSSIBLE : { possible: false, why: NO_BACKUP_NOW },
      createReplicaSet: POSSIBLE,
      query: POSSIBLE,
      enableExtension: { possible: false, why: NO_EXTENSIONS },
      disableExtension: { possible: false, why: NO_EXTENSIONS },
      setAutoSuspend: { possible: false, why: NO_SLEEP },
    },
    vpc: { isNetwork: false, note: VPC },
    storage: { note: 'each server has a volume of this size, which can grow and never shrinks' },
    isolation: {
      isolated: true,
      note: 'each server is a pod, and each project has a namespace',
    },
    limitsEnforced: true,
    room,
    limitsNote:
      'by Kubernetes: CPU and memory of a size are requests of a pod, ' +
      `and ${settings.boundsCpu ? 'limits' : 'memory is a limit'} too, but for the shared size`,
    boundsCpu: settings.boundsCpu,
    cloneMethod: 'copy',
    forkCost: snapshots ? SNAPSHOT_COST : COPY_COST,
  };
}

/** In the words of an answer to a user. */
const NO_BACKUP_NOW =
  'the region has no object store (howdah region object-store), and its cluster no snapshots of ' +
  'volumes (howdah region doctor says why), so there is nowhere to back a service up to';
const NO_RESET =
  'the operator of a cluster makes the data of a service once, and never again in its place; ' +
  'fork the parent again, and delete this fork';
/** No superuser of ours is in these services, and a script of an extension needs one. */
const NO_SLEEP =
  'nothing in the cluster holds the endpoint of a service whose pods are gone; stop the service, ' +
  'or use a region on this machine';
const NO_EXTENSIONS =
  'no region on Kubernetes creates extensions afterwards; create one that PostgreSQL trusts by ' +
  'CREATE EXTENSION as tsdbadmin, or create a service of the type that has it';
const NO_NETWORKS =
  'PostgreSQL sees the address of the TLS gateway of the region in place of those of clients; ' +
  'use a region that was added with --host in place of --domain';
const NO_PAST =
  'the region has no object store (howdah region object-store), and its cluster no snapshots of ' +
  'volumes (howdah region doctor says why), so no state of before can be forked; fork the ' +
  'present one with the strategy NOW';

const NO_VERIFICATION =
  'the region has no object store (howdah region object-store), and its cluster no snapshots of ' +
  'volumes (howdah region doctor says why), so there is no backup to examine; fork the service, ' +
  'and examine the fork';

/** Repositories serve regions of this machine; this one has its own way. */
const offMachineOf = (archive: ObjectStore | null): string =>
  archive === null
    ? 'repositories do not serve regions on Kubernetes, and this one has no object store ' +
      '(howdah region object-store): only the strategies NOW and LAST_SNAPSHOT can be forked'
    : 'base backups and WAL are in the object store of the region, and in no repository: a ' +
      'moment of the past can be forked with the strategy PITR';
const SNAPSHOT_COST =
  'the operator takes a snapshot of the volume, which takes the same time for any size on most ' +
  'storage; where a running server has none, it is copied by pg_basebackup, by its size';
const COPY_COST =
  'the operator copies the data of the running server by pg_basebackup, after a checkpoint of ' +
  'it, by its size: the cluster has no snapshots of volumes (howdah region doctor says why)';
const REPLICAS =
  'the operator chooses the primary, which has the endpoint; replicas have no port for reads, ' +
  'and their lag is not known. Where all replicas are synchronous, as the only one, writes wait ' +
  'after a failover or a switchover until the former primary is back, a minute or two: have one ' +
  'more replica than synchronous ones';
const VPC =
  "address: a service in a VPC refuses clients whose address is none of the VPC's or its peers', " +
  'and answers at the node of its primary only';
const POSSIBLE: Possibility = { possible: true };
