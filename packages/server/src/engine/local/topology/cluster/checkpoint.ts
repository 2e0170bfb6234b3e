/**
 * A checkpoint before a shutdown writes most of what the shutdown would, while the primary still
 * accepts connections.
 */
import type { InstancePaths } from '../../host/layout.ts';
import { withSuperuserSession } from '../../postgres/superuser.ts';
import type { Found } from '../executor.ts';

/** A checkpoint that takes longer than this is given up, and with it the step. */
const CHECKPOINT_LIMIT_MS = 600_000;

export async function checkpointAt(server: InstancePaths, port: number): Promise<void> {
  await withSuperuserSession(
    { server, port, name: 'howdah members', limitMs: CHECKPOINT_LIMIT_MS },
    (client) => client.query('checkpoint'),
  );
}

/** Makes a checkpoint of a server, if it runs. */
export async function checkpoint({ paths, listen, server }: Found): Promise<void> {
  if (server !== null) await checkpointAt(paths, server.port ?? listen.port);
}
