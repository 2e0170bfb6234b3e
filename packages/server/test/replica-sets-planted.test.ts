/** Read replica sets with planted defects: what the tests of sets expect is not so with them. */
import { describe, expect, test } from 'vitest';
import { install, preload, type Installation } from './harness.ts';
import { findProgram } from './probe.ts';
import {
  accepted,
  pathOf,
  untilSet,
  createSet,
  portsOf,
  detailOf,
  untilShown,
  startReaders,
  withTable,
  fallBehind,
  promoteBehind,
  routesToWriter,
} from './sets.ts';
import { until, untilExpected } from './until.ts';

// Without HAProxy there are no sets.
const isInstalled = (await findProgram('haproxy')) !== null;

describe.runIf(isInstalled)('planted defects are noticed', () => {
  const planted = (plant: string): Promise<Installation> =>
    install({
      HOWDAH_READ_LAG_BYTES: '4194304',
      PLANT: plant,
      ...preload('planted.mjs'),
    });

  test('without the lag limit a node that lags far serves reads', { tags: 'slow' }, async () => {
    const broken = await planted('no-lag-limit');
    const set = await createSet(await withTable('planted', {}, broken), 2, broken);
    await untilShown(set, 1, broken);
    const release = await fallBehind(set, broken);
    const [node] = await until('node 1 lags far', async () => {
      const { node_states: states } = await detailOf(set, broken);
      return (states[0]?.lag_bytes ?? 0) >= 4_194_304 && states;
    });
    expect(node?.serving).toBe(true);
    expect((await portsOf(set, broken)).size).toBe(2);
    await release();
    await broken.destroy();
  });

  test('without draining, reads are refused during a resize', { tags: 'slow' }, async () => {
    const broken = await planted('no-drain');
    const set = await createSet(await withTable('planted', {}, broken), 2, broken);
    await untilShown(set, 1, broken);
    const readers = startReaders(set, 4, broken);
    for (let round = 0; readers.refused.length === 0; round++) {
      accepted(
        await broken.request('POST', pathOf(set, '/resize'), {
          cpu_millis: round % 2 === 0 ? '1000' : '500',
        }),
      );
      await untilSet(set, 'active', broken);
    }
    expect((await readers.stop()).refused).not.toEqual([]);
    await broken.destroy();
  });

  test(
    'without fencing the endpoint routes to a node that accepts writes',
    { tags: 'slow' },
    async () => {
      const broken = await planted('writer-serves');
      const set = await createSet(await withTable('planted', {}, broken), 1, broken);
      await untilShown(set, 1, broken);
      await promoteBehind(set, broken);
      await untilExpected('the control plane notices the writer', async () =>
        expect((await detailOf(set, broken)).node_states[0]?.detail).not.toBe(
          'follows the primary',
        ),
      );
      // Where all is well, this round keeps connections from a writer.
      await broken.round('replicaSetLag', 2);
      expect(await routesToWriter(set, broken)).toBe(true);
      await broken.destroy();
    },
  );
});
