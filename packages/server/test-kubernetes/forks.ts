/** Forks of services that run: what they have, and what becomes of them without their parent. */
import { Type } from 'typebox';
import { expect, test } from 'vitest';
import type { ServiceSpec } from '../test/probe.ts';
import { operator, testWithDouble } from './cloud.ts';
import { converge, pathOf, paused, reasonOf, untilSettled, withSubject } from './faults.ts';
import { openLedger } from './ledger.ts';
import { CLUSTERS } from './operator/cluster.ts';
import { namespaceOf, originBackup, removeAll, settle } from './probe.ts';
import type { KubernetesSubject } from './subject.ts';

export const FORK_PASSWORD = 'password-of-a-fork';
export const KEEP = { removes: true, quotaBytes: 1e9 };

export async function forkOf(
  subject: KubernetesSubject,
  parent: ServiceSpec,
): Promise<ServiceSpec> {
  return {
    ...(await subject.newSpec()),
    size: 'shared',
    firstVerifier: await subject.verifierOf(FORK_PASSWORD),
    origin: { parent: parent.id, strategy: 'NOW', targetTime: null },
  };
}

test('a fork has what was acknowledged before, its own password, and no way to its parent', () =>
  withSubject(async (subject) => {
    const parent = await subject.newSpec();
    await settle(subject, parent);
    // One of before, which is not what the fork is made of.
    await subject.engine.backups.keep(parent.id, KEEP);
    const ledger = await openLedger((work) => subject.withClient(parent, work));
    await ledger.goesOn();
    const before = [...ledger.acknowledged];
    const fork = await forkOf(subject, parent);
    const { steps } = await settle(subject, fork);
    expect(steps[0]).toBe('take snapshot');
    await ledger.goesOn();
    expect(await ledger.end()).toEqual([]);
    expect((await subject.engine.backups.describe(parent.id)).snapshots).toHaveLength(1);
    const numbers = await subject.withClient(
      fork,
      async (client) => {
        const { rows } = await client.query<{ number: number }>('select number from ledger');
        return rows.map(({ number }) => number);
      },
      FORK_PASSWORD,
    );
    expect(numbers).toEqual(expect.arrayContaining(before));
    expect(await subject.canLogIn(fork, subject.firstPassword)).toBe(false);
    expect(await subject.canLogIn(parent, FORK_PASSWORD)).toBe(false);
    const cluster = await operator().api.read(pathOf(subject, fork), Type.Unknown());
    expect(JSON.stringify(cluster)).not.toContain(parent.id);
    await removeAll(subject, parent.id);
    const restarted = { ...fork, provisioned: true, restarts: 1 };
    await settle(subject, restarted);
    expect(await subject.canLogIn(restarted, FORK_PASSWORD)).toBe(true);
    await removeAll(subject, fork.id);
  }));

/** Has the backup of a fork's parent fail, so that the parent is copied. */
async function failBackup(subject: KubernetesSubject, fork: ServiceSpec): Promise<void> {
  await converge(subject, fork, ({ detail }) => detail === 'it is being taken');
  const backups = `${CLUSTERS}/namespaces/${namespaceOf(subject.projectId)}/backups`;
  const status = { phase: 'failed', error: 'no room' };
  await operator().api.merge(`${backups}/${originBackup(fork.id)}/status`, { status });
  const ended = await converge(subject, fork, ({ did }) => did === 'take snapshot');
  expect(ended.detail).toContain('no room');
}

testWithDouble('a fork whose parent is stopped meanwhile says so, and goes on once it runs', () =>
  withSubject(async (subject) => {
    const { faults } = operator();
    const parent = await subject.newSpec();
    await settle(subject, parent);
    await subject.insertRows(parent, 2);
    const fork = await forkOf(subject, parent);
    const other = await forkOf(subject, parent);
    // The operator makes nothing of the forks before their parent is stopped.
    faults.isStuck = true;
    try {
      for (const spec of [fork, other]) await failBackup(subject, spec);
      for (const spec of [fork, other, paused(parent)])
        await converge(
          subject,
          spec,
          ({ detail }) => detail?.startsWith('CloudNativePG: ') === true,
        );
      const failed = await converge(subject, fork, ({ outcome }) => outcome === 'failed');
      expect(reasonOf(failed)).toBe(
        `start PostgreSQL: its parent ${parent.id} does not run; start that, or delete the fork`,
      );
    } finally {
      faults.isStuck = false;
    }
    await settle(subject, paused(parent));
    await removeAll(subject, other.id);
    expect(await subject.leftovers(other.id)).toEqual([]);
    await settle(subject, parent);
    // The fork's job makes the next pod after a while.
    await untilSettled(subject, fork);
    expect(await subject.canLogIn(fork, FORK_PASSWORD)).toBe(true);
    for (const { id } of [fork, parent]) {
      await removeAll(subject, id);
      expect(await subject.leftovers(id)).toEqual([]);
    }
  }),
);
