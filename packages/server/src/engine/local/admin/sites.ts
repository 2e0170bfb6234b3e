/** The regions of an installation on this machine, for commands that work without it. */
import { readRegionPlaces } from '../../../installation.ts';
import { LOCAL_REGION } from '../../../settings.ts';
import { dataDirectory, findSite } from '../host/machine.ts';
import type { Site } from '../host/machine-record.ts';

/** `site` is null where the data is not there, or on a data volume that is not mounted. */
export type RegionSite = { code: string; directory: string; site: Site | null };

/** All regions of an installation, the one in its home first. Changes nothing. */
export async function findSites(home: string): Promise<RegionSite[]> {
  const places = await readRegionPlaces(home);
  return Promise.all(
    places.map(async ({ code, directory }) => ({
      code,
      directory,
      site: await findSite(directory),
    })),
  );
}

/** The data directories of all regions. */
export async function dataDirectories(home: string): Promise<string[]> {
  const places = await readRegionPlaces(home);
  return Promise.all(places.map(({ directory }) => dataDirectory(directory)));
}

/**
 * The directory of a region.
 *
 * @throws Error for a region that the installation does not have
 */
export async function regionDirectory(home: string, code: string): Promise<string> {
  if (code === LOCAL_REGION) return home;
  const places = await readRegionPlaces(home);
  const place = places.find((one) => one.code === code);
  if (place === undefined)
    throw new Error(
      `no region ${code} is on this machine; found: ${places.map((one) => one.code).join(', ')}`,
    );
  return place.directory;
}
