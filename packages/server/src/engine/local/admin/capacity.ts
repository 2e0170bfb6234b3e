/** For `howdah doctor`: what the machine has, and what the sizes of its services take together. */
import { stat } from 'node:fs/promises';
import type { Finding } from '@howdah/contract';
import type { ClientConfig } from 'pg';
import {
  describeCapacity,
  overcommitment,
  type Committed,
} from '../../../domain/service/capacity.ts';
import { readRegionPlaces } from '../../../installation.ts';
import { findMetadataPlace } from '../../../metadata-record.ts';
import { readCommittedOf } from '../../../store/committed.ts';
import { measureCapacity } from '../host/capacity.ts';
import { diskUsage } from '../host/reserve.ts';
import { storeConnection } from '../postgres/store-instance.ts';
import { findSites } from './sites.ts';

/** The regions of a machine share its processors and memory; their disks may differ. */
export async function capacityFinding(home: string): Promise<Finding> {
  const capacity = await measureCapacity();
  const committed = await committedOnMachine(home);
  const has = describeCapacity(capacity);
  const what = 'capacity';
  if (committed === null) return { what, state: 'ok', found: has };
  if (typeof committed === 'string')
    return {
      what,
      state: 'ok',
      found: `${has}; the sizes of services are not known: ${committed}`,
    };
  const { sum, diskBytes } = committed;
  const over = overcommitment(sum, capacity, diskBytes);
  const sizes =
    `the sizes of the services are ${sum.cpu_millis / 1000} CPU, ${sum.memory_gbs} GB of memory ` +
    `and ${sum.storage_gb} GB of disk`;
  if (over === null) return { what, state: 'ok', found: `${has}; ${sizes}` };
  return {
    what,
    state: 'note',
    found:
      `${has}; ${sizes} together: more than there is (${over}). They work until they use it at ` +
      'the same time',
    remedy:
      'resize or delete services (howdah service resize NAME), or use a larger machine; howdah ' +
      'metrics shows what a service uses',
  };
}

type OnMachine = Readonly<{ sum: Committed; diskBytes: number }>;

/** null: there is no installation yet; a sentence: its metadata database does not answer. */
async function committedOnMachine(home: string): Promise<OnMachine | string | null> {
  try {
    const connection = await connectionOf(home);
    if (connection === null) return null;
    const places = await readRegionPlaces(home);
    const all = await readCommittedOf(connection);
    const found = places.flatMap(({ code }) => all.get(code) ?? []);
    const add = (of: (one: Committed) => number) => found.reduce((sum, one) => sum + of(one), 0);
    const sites = (await findSites(home)).flatMap(({ site }) => (site === null ? [] : [site]));
    return {
      sum: {
        servers: add((one) => one.servers),
        cpu_millis: add((one) => one.cpu_millis),
        memory_gbs: add((one) => one.memory_gbs),
        storage_gb: add((one) => one.storage_gb),
      },
      diskBytes: await diskBytesOf(sites.map(({ layout }) => layout.root)),
    };
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** Regions can share a disk. */
async function diskBytesOf(directories: readonly string[]): Promise<number> {
  const disks = await Promise.all(
    directories.map(async (one): Promise<[number, number]> => {
      const [{ dev }, { totalBytes }] = await Promise.all([stat(one), diskUsage(one)]);
      return [dev, totalBytes];
    }),
  );
  return [...new Map(disks).values()].reduce((sum, bytes) => sum + bytes, 0);
}

async function connectionOf(home: string): Promise<ClientConfig | null> {
  const place = await findMetadataPlace(home, null);
  if (place !== null) return { connectionString: place };
  const site = (await findSites(home))[0]?.site ?? null;
  return site === null ? null : storeConnection(site);
}
