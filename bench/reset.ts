/** The reset of a fork: from the request to the first row of the new data, against a new fork. */
import { bareKit } from './lib/bare.ts';
import type { Bench, Context } from './lib/bench.ts';
import {
  ask,
  openCloud,
  remove,
  selectOverTls,
  serviceOf,
  stepsOf,
  untilStatus,
  type Cloud,
  type Service,
} from './lib/cloud.ts';
import type { FileSystem } from './lib/filesystems.ts';
import { interleave, measured, partsInWords, stopwatch, valuesOf } from './lib/measure.ts';
import { dirty, fill, forkAndSelect, forkOurs, makeSource, trim } from './lib/source.ts';
import type { Sample } from './lib/measure.ts';
import { compared, skipped, type Row } from './lib/table.ts';

export const reset: Bench = {
  name: 'reset',
  title: 'reset of a fork → first SELECT over TLS, by size',
  run: async (context) => {
    const rows: Row[] = [];
    for (const fileSystem of await context.fileSystems()) {
      if (typeof fileSystem === 'string') rows.push(skipped('', 'reset', fileSystem));
      else rows.push(...(await onFileSystem(context, fileSystem)));
    }
    return rows;
  },
};

async function onFileSystem(
  { rounds, sizesMb, say }: Context,
  { name, directory }: FileSystem,
): Promise<Row[]> {
  const cloud = await openCloud(directory);
  const kit = await bareKit(cloud);
  const rows: Row[] = [];
  for (const megabytes of sizesMb) {
    say(`   ${megabytes} MB on ${name}`);
    const source = await makeSource(cloud, kit, (client) => fill(client, megabytes));
    const { fork } = await forkAndSelect(cloud, source.service, { fork_strategy: 'NOW' });
    const ours = measured(async () => {
      await dirty(source.admin);
      const sample = await resetAndSelect(cloud, fork);
      await trim(source.paths.root);
      return sample;
    });
    const theirs = measured(() => forkOurs(cloud, source));
    await interleave(rounds, [ours, theirs]);
    await remove(cloud, fork.id);
    rows.push(
      compared({
        goal: '',
        what: `reset of ${megabytes} MB → SELECT, ${name} (${kit.machine.cloneMethod})`,
        unit: 'ms',
        ours: valuesOf(ours),
        against: 'a new fork of the same source',
        theirs: valuesOf(theirs),
        ratio: 'ours/theirs',
        bound: null,
        limit: `ms: ${partsInWords(ours)}`,
      }),
    );
  }
  await cloud.end();
  return rows;
}

async function resetAndSelect(cloud: Cloud, fork: Service): Promise<Sample> {
  const watch = stopwatch();
  serviceOf(JSON.parse(await ask(cloud, 'POST', `/services/${fork.id}/reset`, {})));
  watch.lap('answer');
  await untilStatus(cloud, fork.id, 'READY');
  watch.lap('until READY');
  await selectOverTls(cloud.ca, fork.port, fork.password, cloud.host);
  watch.lap('TLS + SELECT');
  const { value, parts } = watch.sample();
  return { value, parts: { ...parts, ...(await stepsOf(cloud, fork.id)) } };
}
