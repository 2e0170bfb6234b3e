/**
 * The integrity check: compares the machine and the clusters of regions with the metadata database,
 * both ways. `howdah audit` runs it, and so does every system test at its end.
 */
import { join } from 'node:path';
import { messageOf } from '@howdah/contract/thrown';
import type { ClientConfig } from 'pg';
import type { Config } from './config.ts';
import {
  clusterAmiss,
  type Ids,
  type Recorded,
  type RecordedRegion,
} from './engine/kubernetes/integrity/compare.ts';
import {
  takeClusterInventory,
  type ClusterInventory,
} from './engine/kubernetes/integrity/inventory.ts';
import { machineAmiss, takeInventories } from './engine/local/admin/integrity.ts';
import { findSites, type RegionSite } from './engine/local/admin/sites.ts';
import { storeConnection } from './engine/local/postgres/store-instance.ts';
import { openSealer } from './lib/sealer.ts';
import { exists, isErrno } from './lib/processes.ts';
import { accessOrFail, withCluster } from './kubernetes-regions.ts';
import {
  findMetadataPlace,
  findOwnProject,
  nameOf,
  type MetadataPlace,
} from './metadata-record.ts';
import { examineContents, problemOfContents } from './store/contents.ts';
import { readExpected, settledServices, type Expected } from './store/integrity.ts';
import type { KubernetesRegionRow } from './store/kubernetes-regions.ts';

/**
 * Changes nothing.
 *
 * @returns a sentence for each contradiction; none: all is well
 * @throws Error when there is no installation
 */
export async function checkIntegrity(
  config: Pick<Config, 'home' | 'databaseUrl'> & Partial<Pick<Config, 'credentialPrograms'>>,
): Promise<string[]> {
  const { home } = config;
  const sites = await findSites(home);
  const place = await findMetadataPlace(home, config.databaseUrl);
  const connection = connectionOf({ home, databaseUrl: place }, sites);
  await refuseOther(home, place, connection);
  const before = await readExpected(connection);
  const [machine, clusters] = await Promise.all([
    takeInventories(sites),
    inspectClusters(home, config.credentialPrograms ?? [], before.clusters),
  ]);
  const after = await readExpected(connection);
  return [
    ...after.contradictions.filter((text) => before.contradictions.includes(text)),
    ...(await machineAmiss(home, machine, before, after)),
    ...clusters.flatMap(({ code, domain, found }) =>
      typeof found === 'string'
        ? [`region ${code} was not compared: ${found}`]
        : clusterAmiss(
            { code, domain },
            recordedIn(code, before, after),
            idsIn(code, before, after),
            found,
          ),
    ),
  ];
}

/** @throws Error when the metadata database does not answer, or is not that of the home */
async function refuseOther(home: string, place: MetadataPlace, connection: ClientConfig) {
  const contents = await examineContents(connection).catch((error: unknown) => {
    if (place === null && isErrno(error, 'ENOENT', 'ECONNREFUSED'))
      throw new Error(
        `the metadata database of ${home} does not answer: it runs together with the control ` +
          'plane; start it with howdah up',
      );
    const reason = messageOf(error);
    throw new Error(`the metadata database of ${home}, ${nameOf(place)}: ${reason}`, {
      cause: error,
    });
  });
  const project = (await findOwnProject(home)) ?? contents.projects[0] ?? null;
  const problem = problemOfContents(contents, project, true);
  if (problem !== null)
    throw new Error(`${nameOf(place)} is not the metadata database of ${home}: ${problem}`);
}

/** A control plane in a cluster has no data on its machine, and a metadata database elsewhere. */
function connectionOf(
  { home, databaseUrl }: Pick<Config, 'home' | 'databaseUrl'>,
  sites: readonly RegionSite[],
): ClientConfig {
  if (databaseUrl !== null) return { connectionString: databaseUrl };
  const site = sites[0]?.site ?? null;
  if (site !== null) return storeConnection(site);
  throw new Error(
    `no installation in ${home}: howdah up makes one, or mounts the store of one that is stopped`,
  );
}

/** Inspects the clusters of regions; a sentence: why one is not known. */
function inspectClusters(
  home: string,
  programs: readonly string[],
  rows: readonly KubernetesRegionRow[],
): Promise<(RecordedRegion & { found: ClusterInventory | string })[]> {
  return Promise.all(
    rows.map(async (row) => {
      const { code, domain } = row;
      try {
        const keyPath = join(home, 'secrets.key');
        // To open a key that is missing makes one.
        if (!(await exists(keyPath)))
          throw new Error(`${keyPath} is missing: restore it from a backup of the control plane`);
        const access = accessOrFail(await openSealer(keyPath), row);
        const found = await withCluster(access, programs, (kube) => takeClusterInventory(kube));
        return { code, domain, found };
      } catch (error) {
        return { code, domain, found: messageOf(error) };
      }
    }),
  );
}

/** The services of a region, as they were while its cluster was read. */
function recordedIn(code: string, before: Expected, after: Expected): Recorded[] {
  const settled = new Set(settledServices(before, after).map(({ id }) => id));
  return after.services
    .filter(({ region }) => region === code)
    .map((service) => ({ ...service, isSettled: settled.has(service.id) }));
}

/** Services that come or go meanwhile are known. Those that move meanwhile are nowhere amiss. */
function idsIn(code: string, before: Expected, after: Expected): Ids {
  const known = [...before.services, ...after.services].map(({ id }) => id);
  const here = [before, after].flatMap(({ services, copied, moved }) =>
    [...services, ...copied, ...moved].filter(({ region }) => region === code).map(({ id }) => id),
  );
  const movedIn = ({ moved }: Expected) =>
    moved.filter(({ region }) => region === code).map(({ id }) => id);
  return {
    known: new Set(known),
    elsewhere: new Set(known.filter((id) => !here.includes(id))),
    moved: new Set(movedIn(after).filter((id) => movedIn(before).includes(id))),
  };
}
