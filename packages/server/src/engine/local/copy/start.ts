/** Starts and stops the server of a copy, which follows its service. */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { findProcess, pauseMs, readOrNull } from '../../../lib/processes.ts';
import { writeOwned } from '../backup/take.ts';
import {
  makeInstanceDirectories,
  findServer,
  launch,
  whyItEnded,
  writeConfig,
  fence,
} from '../postgres/server.ts';
import { missingFor } from '../postgres/installations.ts';
import { limitSoon } from '../topology/executor.ts';
import type { Topology } from '../topology/context.ts';
import type { FoundCopy } from './observe.ts';
import { copyFiles, type CopySpec } from './place.ts';

/**
 * A server that cannot start ends within moments, and the next round finds it if it takes longer.
 * The round is free for what a user changes meanwhile.
 */
const STARTED_WITHIN_MS = 3000;

/** Starts the server of a copy, with the desired files. @returns a line for the user */
export async function startCopy(
  { machine, executor }: Pick<Topology, 'machine' | 'executor'>,
  spec: CopySpec,
  { paths, owner, installation, followed }: FoundCopy,
): Promise<string> {
  if (installation === null)
    throw new Error(missingFor(machine.installations.usable, spec.addons, spec.major));
  if (!(await fence(paths))) throw new Error('its server does not end');
  await makeInstanceDirectories(owner, paths);
  // Its service may have moved since: it follows by what it was given last.
  if (followed !== null)
    await writeConfig(owner, paths, copyFiles(spec, paths, { installation, owner }, followed));
  await writeOwned(owner, join(paths.data, 'postgresql.auto.conf'), '');
  const begunMs = Date.now();
  await launch(machine, owner, paths, installation.bin, spec);
  while (Date.now() - begunMs < STARTED_WITHIN_MS) {
    const pid = Number((await readOrNull(paths.pidFile)) ?? '0');
    if (pid !== 0 && (await findProcess(pid)) === null)
      throw new Error(`PostgreSQL did not start: ${await whyItEnded(paths, begunMs)}`);
    const server = await findServer(paths);
    if (server?.port != null) {
      limitSoon(executor, spec.id, spec, server);
      return `PostgreSQL ${installation.version}`;
    }
    await sleep(pauseMs(begunMs));
  }
  return 'it is starting';
}
