import { mkdir, mkdtemp, readdir, realpath, rm, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { bareMachine } from '../host/bare-machine.testing.ts';
import { createLayout } from '../host/layout.ts';
import { writeMarker, type Marker } from '../host/marker.ts';
import { removeOldAside } from './aside-data.ts';

test('data set aside is removed after its time, but not during its recovery', async () => {
  const layout = createLayout(await realpath(await mkdtemp(join(tmpdir(), 'howdah-'))));
  const machine = bareMachine(layout);
  await mkdir(layout.trash);
  const paths = layout.service('a');
  const mark = (provisioned: boolean, exchange: Marker['exchange'] = null): Promise<void> =>
    writeMarker(paths, {
      id: 'a',
      installation: '18',
      provisioned,
      parent: null,
      began: null,
      madeIn: '',
      uid: null,
      userOf: null,
      recovery: 'current',
      upgrade: null,
      exchange,
    });
  const left = async (): Promise<string[]> => {
    await removeOldAside(machine, 'a', 1000);
    return (await readdir(layout.aside('a'))).toSorted();
  };
  const old = new Date(Date.now() - 60_000);
  for (const name of ['current', 'former', 'recent']) {
    await mkdir(join(layout.aside('a'), name), { recursive: true });
    if (name !== 'recent') await utimes(join(layout.aside('a'), name), old, old);
  }
  await utimes(join(layout.aside('a'), 'recent'), new Date(), new Date(Date.now() + 600_000));
  await mark(false);
  expect(await left()).toEqual(['current', 'recent']);
  await mark(true);
  expect(await left()).toEqual(['recent']);
  // Data that a reset has replaced, however recent, once it is not being exchanged any more.
  await mkdir(join(layout.aside('a'), 'reset-replaced'));
  await mark(true, { upgrade: 'reset', installation: '18' });
  expect(await left()).toEqual(['recent', 'reset-replaced']);
  await mark(true);
  expect(await left()).toEqual(['recent']);
  await rm(layout.root, { recursive: true });
});
