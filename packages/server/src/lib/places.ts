/** Files and directories of a control plane, which must stay while it runs. */
import { stat } from 'node:fs/promises';
import { isErrno } from './processes.ts';

/** A path, and which file or directory has it. */
export type Place = Readonly<{ path: string; identity: string }>;

/** @throws Error for a path that does not exist */
export async function rememberPlaces(paths: readonly string[]): Promise<Place[]> {
  return Promise.all(
    paths.map(async (path) => {
      const identity = await identityOf(path);
      if (identity === null) throw new Error(`${path} is missing`);
      return { path, identity };
    }),
  );
}

/** A place that is gone, or whose path something else has by now; null: all are there. */
export async function findLost(places: readonly Place[]): Promise<Place | null> {
  for (const place of places) if ((await identityOf(place.path)) !== place.identity) return place;
  return null;
}

/** null: the path does not exist. A disk that does not answer is an error. */
async function identityOf(path: string): Promise<string | null> {
  try {
    const { dev, ino } = await stat(path, { bigint: true });
    return `${dev}:${ino}`;
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR', 'ESTALE')) return null;
    throw error;
  }
}
