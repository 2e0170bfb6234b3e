/** Resets of a fork that are crashed in. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { change } from './crash-playables.ts';
import type { Playable, Testbed } from './crash.ts';
import { createLayout } from './probe.ts';
import { accessOf, insert, nothingGoesOn } from './service-access.ts';
import { until } from './until.ts';

/** Scenes on a fork that is written to, and reset, again and again. */
export async function resetScenes({ cloud }: Testbed): Promise<Playable[]> {
  const parent = await cloud.create({ name: 'parent of resets', service_type: 'POSTGRES' });
  await insert(cloud, parent, 'at the beginning');
  const { service_id: id, initial_password } = accessOf(
    (
      await cloud.request('POST', `/services/${parent.service_id}/forkService`, {
        fork_strategy: 'NOW',
        name: 'reset',
      })
    ).body,
  );
  const { endpoint } = await cloud.until(id, 'READY');
  const fork = { service_id: id, endpoint, initial_password };
  await insert(cloud, parent, 'later');
  const layout = createLayout(join(cloud.home, 'data'));
  const left = (directory: string): Promise<string[]> => readdir(directory).catch(() => []);
  const reset = (name: string, body: object): Playable =>
    change(cloud, fork, name, {
      before: () => insert(cloud, fork, 'in the fork'),
      ask: ['POST', '/reset', () => body],
      becomes: 'READY',
      shows: async () => {
        // The fork runs again while the replaced data is removed; after a crash, a round does it.
        await until('nothing is under way', () => nothingGoesOn(cloud));
        await cloud.round('snapshots');
        return [await left(layout.aside(id)), await left(layout.scratch)];
      },
      after: async () => undefined,
    });
  return [
    reset('reset', { target: 'NOW' }),
    reset('reset to its beginning', { target: 'BEGINNING' }),
  ];
}
