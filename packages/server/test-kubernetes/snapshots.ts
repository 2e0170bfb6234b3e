/** Forks by snapshots of volumes, and what is left of those. */
import { Type } from 'typebox';
import { expect, test } from 'vitest';
import type { ServiceSpec } from '../test/probe.ts';
import { operator, testWithDouble } from './cloud.ts';
import { converge, pathOf, paused, reasonOf, withSubject } from './faults.ts';
import { FORK_PASSWORD, forkOf, KEEP } from './forks.ts';
import { removeAll, replicated, settle } from './probe.ts';
import type { KubernetesSubject } from './subject.ts';
import { untilExpected } from '../test/until.ts';

const CONTENTS = '/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents';
const CONTENT = Type.Object({
  spec: Type.Object({ volumeSnapshotRef: Type.Object({ name: Type.String() }) }),
});

/** The snapshots on the storage that were taken for a fork. */
async function storedFor({ id }: Pick<ServiceSpec, 'id'>): Promise<number> {
  const contents = await operator().api.list(CONTENTS, CONTENT);
  return contents.filter(({ spec }) => spec.volumeSnapshotRef.name.includes(id)).length;
}

type Power = 'paused' | 'running';
const POWERS: Power[] = ['paused', 'running'];

async function parentWith(
  subject: KubernetesSubject,
  power: Power,
  replicas = 0,
): Promise<ServiceSpec> {
  const single = await subject.newSpec();
  const parent = replicas === 0 ? single : replicated(subject, single, replicas);
  await settle(subject, parent);
  await subject.insertRows(parent, 3);
  if (power === 'paused') await settle(subject, paused(parent));
  return parent;
}

test.each(POWERS)('a fork of a %s service survives its control plane at each step', (power) =>
  withSubject(async (subject) => {
    const parent = await parentWith(subject, power, power === 'running' ? 1 : 0);
    const fork = await forkOf(subject, parent);
    // An engine that begins again connects again.
    const steps = new Set<string>();
    const details = new Set<string | null>();
    for (;;) {
      const verdict = await subject.engine.lifecycle.converge(fork, async () => undefined);
      const { did, detail, outcome } = verdict;
      if (did !== null) steps.add(did);
      if (outcome === 'settled') break;
      if (outcome === 'failed') throw new Error(verdict.reason);
      // Also between the halves of steps, and once for each that is waited for.
      if (details.has(detail)) await subject.wait(50);
      else await subject.recreate();
      details.add(detail);
    }
    expect([...steps]).toEqual([
      'take snapshot',
      'create Cluster',
      'start PostgreSQL',
      'detach from parent',
      'connect',
    ]);
    await untilExpected('no snapshot for the fork is stored', async () =>
      expect(await storedFor(fork)).toBe(0),
    );
    for (const password of [FORK_PASSWORD, subject.firstPassword])
      expect(await subject.canLogIn(fork, password)).toBe(password === FORK_PASSWORD);
    const count = 'select from suite';
    const { rowCount } = await subject.withClient(
      fork,
      (client) => client.query(count),
      FORK_PASSWORD,
    );
    expect(rowCount).toBe(3);
    const cluster = await operator().api.read(pathOf(subject, fork), Type.Unknown());
    expect(JSON.stringify(cluster)).not.toContain(parent.id);
    for (const { id } of [parent, fork]) {
      await removeAll(subject, id);
      expect(await subject.leftovers(id)).toEqual([]);
    }
  }),
);

test.each(POWERS)('a fork of a %s service goes on without it once its snapshot is taken', (power) =>
  withSubject(async (subject) => {
    const parent = await parentWith(subject, power);
    const [fork, removed, late] = [
      await forkOf(subject, parent),
      await forkOf(subject, parent),
      await forkOf(subject, parent),
    ];
    for (const spec of [fork, removed])
      await converge(subject, spec, ({ did }) => did === 'take snapshot');
    await removeAll(subject, parent.id);
    expect(await subject.leftovers(parent.id)).toEqual([]);
    const failed = await converge(subject, late, ({ outcome }) => outcome === 'failed');
    expect(reasonOf(failed)).toContain(`its parent ${parent.id} has no Cluster any more`);
    await converge(subject, removed, ({ did }) => did === 'create Cluster');
    await settle(subject, fork);
    expect(await subject.canLogIn(fork, FORK_PASSWORD)).toBe(true);
    for (const spec of [fork, removed, late]) {
      await removeAll(subject, spec.id);
      expect(await subject.leftovers(spec.id)).toEqual([]);
      await untilExpected('no snapshot of the service is stored', async () =>
        expect(await storedFor(spec)).toBe(0),
      );
    }
  }),
);

testWithDouble('a parent that is stopped while it is backed up is forked all the same', () =>
  withSubject(async (subject) => {
    const { faults } = operator();
    const parent = await parentWith(subject, 'running');
    const [fork, removed] = [await forkOf(subject, parent), await forkOf(subject, parent)];
    faults.isStuck = true;
    try {
      for (const spec of [fork, removed])
        await converge(subject, spec, ({ detail }) => detail === 'it is being taken');
      await removeAll(subject, removed.id);
      expect(await subject.leftovers(removed.id)).toEqual([]);
      await converge(subject, paused(parent), ({ did, detail }) => did === null && detail !== null);
    } finally {
      faults.isStuck = false;
    }
    await settle(subject, paused(parent));
    const { steps } = await settle(subject, fork);
    expect(steps.slice(0, 3)).toEqual(['take snapshot', 'take snapshot', 'create Cluster']);
    await removeAll(subject, parent.id);
    await removeAll(subject, fork.id);
    for (const { id } of [parent, fork, removed]) {
      expect(await subject.leftovers(id)).toEqual([]);
      expect(await storedFor({ id })).toBe(0);
    }
  }),
);

testWithDouble('a snapshot goes with the Cluster of its fork, if somebody deletes that', () =>
  withSubject(async (subject) => {
    const parent = await parentWith(subject, 'paused');
    const fork = await forkOf(subject, parent);
    const { faults } = operator();
    faults.isStuck = true;
    try {
      await converge(subject, fork, ({ detail }) => detail?.startsWith('CloudNativePG: ') === true);
      expect(await storedFor(fork)).toBe(1);
      await operator().api.remove(pathOf(subject, fork));
      await untilExpected('no snapshot for the fork is stored', async () =>
        expect(await storedFor(fork)).toBe(0),
      );
    } finally {
      faults.isStuck = false;
    }
    for (const { id } of [fork, parent]) await removeAll(subject, id);
  }),
);

/** Takes a snapshot of a service that has these rows more. */
async function backUp(subject: KubernetesSubject, spec: ServiceSpec, rows: number): Promise<void> {
  await subject.insertRows(spec, rows);
  await subject.wait(2 * subject.snapshotEveryMs);
  expect(await subject.engine.backups.keep(spec.id, KEEP)).toBe(false);
}

test('a fork of the last snapshot has no later write, and needs its parent no more', () =>
  withSubject(async (subject) => {
    const parent = { ...(await subject.newSpec()), provisioned: true };
    await settle(subject, { ...parent, provisioned: false });
    await backUp(subject, parent, 2);
    await backUp(subject, parent, 3);
    await subject.insertRows(parent, 4);
    const { snapshots } = await subject.engine.backups.describe(parent.id);
    expect(snapshots).toHaveLength(2);
    await settle(subject, paused(parent));
    const origin = { parent: parent.id, strategy: 'LAST_SNAPSHOT', targetTime: null } as const;
    const fork = { ...(await forkOf(subject, parent)), origin };
    // The fork's volume is made before its pods.
    await converge(subject, fork, ({ did }) => did === 'start PostgreSQL');
    await removeAll(subject, parent.id);
    expect(await subject.leftovers(parent.id)).toEqual([]);
    await untilExpected('no snapshot of the parent is stored', async () =>
      expect(await storedFor(parent)).toBe(0),
    );
    await subject.recreate();
    await settle(subject, fork);
    const { rowCount } = await subject.withClient(
      fork,
      (client) => client.query('select from suite'),
      FORK_PASSWORD,
    );
    expect(rowCount).toBe(5);
    const cluster = await operator().api.read(pathOf(subject, fork), Type.Unknown());
    expect(JSON.stringify(cluster)).not.toContain(parent.id);
    const late = { ...(await forkOf(subject, parent)), origin };
    const failed = await converge(subject, late, ({ outcome }) => outcome === 'failed');
    expect(reasonOf(failed)).toContain('has no snapshot');
    for (const { id } of [fork, late]) {
      await removeAll(subject, id);
      expect(await subject.leftovers(id)).toEqual([]);
    }
  }));
