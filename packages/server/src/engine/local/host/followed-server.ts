/**
 * The server that a copy of a service in another region follows: a file beside the data of the
 * copy, which only root writes. It is there for as long as the copy may connect to that server.
 */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Type, type Static } from 'typebox';
import { Check } from 'typebox/value';
import { writeDurably } from '../../../lib/durable-files.ts';
import { readNow } from '../../../lib/processes.ts';
import type { InstancePaths, Layout } from './layout.ts';
import { markerOf } from './marker.ts';
import { rm } from './root-files.ts';

const FOLLOWED = Type.Object({
  /** The role that the copy logs in as. */
  user: Type.String(),
  /** The endpoint of the service. */
  host: Type.String(),
  port: Type.Integer(),
  /** The address of that host: the user of a service may ask no name server. */
  address: Type.String(),
});
export type Followed = Static<typeof FOLLOWED>;

const pathOf = ({ root }: Pick<InstancePaths, 'root'>): string => join(root, 'follows.json');

export async function writeFollowed(paths: InstancePaths, followed: Followed): Promise<void> {
  await writeDurably(pathOf(paths), JSON.stringify(followed), 0o600);
}

/** null: the copy may not connect any more, or not yet. */
export function readFollowed(paths: Pick<InstancePaths, 'root'>): Followed | null {
  try {
    const found: unknown = JSON.parse(readNow(pathOf(paths)) ?? 'null');
    return Check(FOLLOWED, found) ? found : null;
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}

export async function forgetFollowed(paths: InstancePaths): Promise<void> {
  await rm(pathOf(paths), { force: true });
}

/** The connections that the copies of an installation may begin. */
export async function findAllowedIn(
  layout: Pick<Layout, 'copies' | 'copy'>,
): Promise<{ uid: number; address: string; port: number }[]> {
  return (await readdir(layout.copies)).flatMap((id) => {
    const [followed, uid] = [readFollowed(layout.copy(id)), markerOf(layout.copy(id))?.uid];
    return followed === null || uid == null
      ? []
      : [{ uid, address: followed.address, port: followed.port }];
  });
}
