/**
 * `howdah store …`: where the data of an installation is, and the data volume that it can be moved
 * into.
 */
import { statfs } from 'node:fs/promises';
import { fileSystemOf, findImage, growImage, imagePaths, type ImageFacts } from '../host/image.ts';
import { createImage, type StoreFileSystem } from '../host/image-create.ts';
import { dataDirectory, makeDataDirectory } from '../host/machine.ts';
import { exists } from '../../../lib/processes.ts';
import { findControl } from '../../../installation.ts';
import { regionDirectory } from './sites.ts';

/**
 * Makes a store and moves the data of a region into it.
 *
 * @param progress called with each part before it begins
 * @throws Error with what is in the way and what to do about it; nothing was changed then
 */
export async function createStore(
  home: string,
  region: string,
  sizeBytes: number,
  fileSystem: StoreFileSystem,
  progress: (part: string) => void,
): Promise<void> {
  const control = await findControl(home);
  if (control !== null) {
    throw new Error(
      `the control plane runs (process ${control.pid}): ` +
        'howdah down --databases stops it and the databases, then try again',
    );
  }
  const data = await makeDataDirectory(await regionDirectory(home, region));
  await createImage(imagePaths(data), sizeBytes, fileSystem, progress);
}

/** Makes the data volume of a region larger; databases go on. */
export async function resizeStore(home: string, region: string, sizeBytes: number): Promise<void> {
  const data = await dataDirectory(await regionDirectory(home, region));
  await growImage(imagePaths(data), sizeBytes);
}

/** Where the data of a region is. */
export type DataPlace = {
  path: string;
  /** Null while there is nothing: before the first start. */
  fileSystem: { name: string; totalBytes: number; freeBytes: number } | null;
  store: ImageFacts | null;
};

export async function describeData(home: string, region: string): Promise<DataPlace> {
  const path = await dataDirectory(await regionDirectory(home, region));
  const store = await findImage(imagePaths(path));
  if (store?.mounted === false || !(await exists(path))) return { path, fileSystem: null, store };
  const { blocks, bavail, bsize } = await statfs(path);
  return {
    path,
    fileSystem: {
      name: await fileSystemOf(path),
      totalBytes: blocks * bsize,
      freeBytes: bavail * bsize,
    },
    store,
  };
}
