/**
 * G2: a create that finds a spare, against a password set by hand on a running server and a first
 * row over TLS.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { bareKit, connectBare, idleBare, setPassword, type BareKit } from './lib/bare.ts';
import type { Bench } from './lib/bench.ts';
import {
  createAndSelect,
  openCloud,
  openMetadata,
  remove,
  selectOverTls,
  stepsOf,
} from './lib/cloud.ts';
import {
  idle,
  interleave,
  measured,
  partOf,
  partsInWords,
  stopwatch,
  valuesOf,
  type Sample,
} from './lib/measure.ts';
import { bounded, compared, type Row } from './lib/table.ts';
import type { FileSystem } from './lib/filesystems.ts';

export const spare: Bench = {
  name: 'spare',
  title: 'G2: create with a spare kept ready → first SELECT over TLS',
  run: async (context) => {
    const btrfs = await context.loop('btrfs');
    return [
      ...(await onFileSystem(context.here, context.rounds)),
      ...(typeof btrfs === 'string' ? [] : await onFileSystem(btrfs, context.rounds)),
    ];
  },
};

async function onFileSystem({ name, directory }: FileSystem, rounds: number): Promise<Row[]> {
  const cloud = await openCloud(directory, { HOWDAH_SPARES: '1' });
  const kit = await bareKit(cloud);
  const metadata = await openMetadata(cloud);
  const untilRefilled = async (): Promise<void> => {
    for (;;) {
      const { rowCount } = await metadata.query(
        'select from services where project_id is null and reachable and lease_until is null',
      );
      if (rowCount === 1) return;
      await sleep(5);
    }
  };

  const ours = measured(async () => {
    await untilRefilled();
    await idle();
    const begun = performance.now();
    const { service, sample } = await createAndSelect(cloud);
    await untilRefilled();
    const refilled = performance.now() - begun - sample.value;
    const steps = await stepsOf(cloud, service.id);
    await remove(cloud, service.id);
    return { value: sample.value, parts: { ...sample.parts, ...steps, refilled } };
  });
  const floor = measured(() => claimBare(kit));
  await interleave(rounds, [ours, floor]);
  await metadata.end();
  await cloud.end();
  const row = { goal: 'G2', unit: 'ms', ours: valuesOf(ours) } as const;
  const parts = `ms of ours: ${partsInWords(ours)}; of the floor: ${partsInWords(floor)}`;
  return [
    compared({
      ...row,
      what: `create with a spare → SELECT, ${name}`,
      against: 'ALTER ROLE on a kept connection + TLS SELECT by hand, on a server as new',
      theirs: valuesOf(floor),
      ratio: 'ours/theirs',
      bound: { atMost: 2 },
      limit: parts,
    }),
    bounded({
      ...row,
      what: `create with a spare → SELECT, ${name}`,
      bound: { atMost: 45 },
      limit: 'more than half of it is the user’s own TLS, SCRAM and first backend of the database',
    }),
    bounded({
      goal: 'G2',
      what: `first SELECT → the next spare is ready, ${name}`,
      unit: 'ms',
      ours: partOf(ours, 'refilled'),
      bound: { atMost: 1000 },
      limit: 'a whole create (G1)',
    }),
  ];
}

/** The least a claim can be: a server as new, on which an admin connection is open. */
async function claimBare(kit: BareKit): Promise<Sample> {
  const { server, forget } = await idleBare(kit, 'ours');
  const admin = await connectBare(server);
  await admin.query('select 1');
  await idle();
  const watch = stopwatch();
  const password = await setPassword(admin);
  watch.lap('password');
  await selectOverTls(kit.ca, server.port, password);
  watch.lap('TLS + SELECT');
  const sample = watch.sample();
  admin.connection.stream.destroy();
  await forget();
  return sample;
}
