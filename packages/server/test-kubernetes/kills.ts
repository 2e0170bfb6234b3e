/**
 * The pods of a project are removed by force, all of them, before and in each step of its
 * operations. A drill, which ends as failed then, is left out.
 */
import { Type } from 'typebox';
import { describe, expect, test } from 'vitest';
import type { BeginStep, ServiceSpec } from '../test/probe.ts';
import { operator, rig } from './cloud.ts';
import { larger, paused, untilSettled, withSubject } from './faults.ts';
import { FORK_PASSWORD, forkOf } from './forks.ts';
import { openLedger } from './ledger.ts';
import { pathIn } from './operator/cluster.ts';
import {
  currentSpec,
  namespaceOf,
  podOf,
  removeAll,
  replicated,
  settle,
  STEPS,
  switchOverTo,
} from './probe.ts';
import type { KubernetesSubject } from './subject.ts';
import { until } from '../test/until.ts';

const POD = Type.Object({ metadata: Type.Object({ name: Type.String() }) });

/** Sessions of a stopped postmaster go on. Kubernetes ends it by force after a while. */
const IGNORE_END = 'kill -STOP "$(head -n 1 /var/lib/postgresql/data/pgdata/postmaster.pid)"';

/** Kills the pods of all Clusters, jobs and poolers of a project. @returns how many there were */
async function killAll({ projectId }: KubernetesSubject): Promise<number> {
  const { api } = operator();
  const path = pathIn(namespaceOf(projectId), 'pods');
  const pods = await api.list(path, POD);
  await Promise.all(pods.map(({ metadata: { name } }) => api.remove(`${path}/${name}`, 0)));
  return pods.length;
}

/** Kills before a step begins, and once there are pods while it is under way. */
function killing(subject: KubernetesSubject): { begin: BeginStep; begun: Set<string> } {
  const begun = new Set<string>();
  const killed = new Set<string>();
  const begin: BeginStep = async (step) => {
    if (killed.has(step)) return;
    const count = await killAll(subject);
    if (begun.has(step) && count > 0) killed.add(step);
    begun.add(step);
  };
  return { begin, begun };
}

/** The steps of an operation, with kills in each. A step that fails for them is made again. */
async function settleKilling(subject: KubernetesSubject, spec: ServiceSpec): Promise<Set<string>> {
  const { begin, begun } = killing(subject);
  const { lifecycle } = subject.engine;
  await until('the service is settled', async () => {
    const verdict = await lifecycle.converge(currentSpec(subject, spec), begin);
    if (verdict.outcome === 'again') await subject.wait(verdict.waitMs);
    return verdict.outcome === 'settled';
  });
  return begun;
}

describe.concurrent('a service whose pods are all killed in each step', { tags: 'slow' }, () => {
  test('is made, changed, stopped, started and removed, and keeps each acknowledged write', () =>
    withSubject(async (subject) => {
      let spec = await subject.newSpec();
      const change = async (fields: Partial<ServiceSpec>): Promise<Set<string>> => {
        spec = { ...spec, provisioned: true, ...fields };
        return settleKilling(subject, spec);
      };
      expect(await settleKilling(subject, spec)).toContain(STEPS.create);
      const ledger = await openLedger((work) => subject.withClient(spec, work));
      const goesOn = () => ledger.goesOn();
      await goesOn();
      expect(await change(larger(spec))).toContain(STEPS.restart);
      await goesOn();
      expect(await change({ storageGb: 20 })).toContain(STEPS.growVolume);
      await goesOn();
      expect(await change({ restarts: 1 })).toContain(STEPS.restart);
      await goesOn();
      expect(await change({ pooler: { port: await subject.newPort() } })).toContain(
        STEPS.startPooler,
      );
      await goesOn();
      expect(await change({ pooler: null })).toContain(STEPS.stopPooler);
      expect(await change(replicated(subject, spec, 1))).toContain(STEPS.addStandby);
      await goesOn();
      const before = subject.records.primary(spec.id);
      subject.records.ask(spec.id, { switchover: true });
      expect(await change({})).toContain(switchOverTo(1));
      expect(subject.records.primary(spec.id)).not.toBe(before);
      await goesOn();
      const { ha } = spec;
      if (ha === null) throw new Error('it has replicas');
      expect(await change({ ha: { ...ha, replicas: 0, sync: 0 } })).toContain(STEPS.removeStandby);
      await goesOn();
      expect(await change(paused(spec))).toContain(STEPS.stop);
      expect(await change({ power: 'running' })).toContain(STEPS.start);
      await goesOn();
      expect(await ledger.end()).toEqual([]);
      const { begin } = killing(subject);
      await removeAll(subject, spec.id, null, begin);
      expect(await subject.leftovers(spec.id)).toEqual([]);
    }));

  test('has a fork and a read replica set', () =>
    withSubject(async (subject) => {
      const spec = await subject.newSpec();
      await settle(subject, spec);
      const ledger = await openLedger((work) => subject.withClient(spec, work));
      await ledger.goesOn();
      const before = [...ledger.acknowledged];
      const fork = await forkOf(subject, spec);
      expect(await settleKilling(subject, fork)).toContain(STEPS.snapshot);
      const { rows } = await subject.withClient(
        fork,
        (client) => client.query<{ number: number }>('select number from ledger'),
        FORK_PASSWORD,
      );
      expect(rows.map(({ number }) => number)).toEqual(expect.arrayContaining(before));
      const set: ServiceSpec = {
        ...(await subject.newSpec()),
        firstVerifier: null,
        set: { parent: spec.id, nodes: 1, purpose: 'reports' },
      };
      expect(await settleKilling(subject, set)).toContain(STEPS.create);
      const two = {
        ...set,
        provisioned: true,
        set: { parent: spec.id, nodes: 2, purpose: 'reports' },
      } as const;
      expect(await settleKilling(subject, two)).toContain(STEPS.addNode);
      expect(await settleKilling(subject, { ...two, set: set.set })).toContain(STEPS.removeNode);
      await ledger.goesOn();
      expect(await ledger.end()).toEqual([]);
      const { begin } = killing(subject);
      await removeAll(subject, set.id, spec.id, begin);
      await removeAll(subject, fork.id, null, killing(subject).begin);
      await removeAll(subject, spec.id, null, killing(subject).begin);
      for (const { id } of [set, fork, spec]) expect(await subject.leftovers(id)).toEqual([]);
    }));
});

// `kubectl delete --force`: the pod is gone before its processes are.
test('a service has no two servers on its volume when the removal of its pod is forced', () =>
  withSubject(async (subject) => {
    const spec = await subject.newSpec();
    await settle(subject, spec);
    const ledger = await openLedger((work) => subject.withClient(spec, work));
    await ledger.goesOn();
    const metadata = { namespace: namespaceOf(subject.projectId), name: podOf(spec.id, 0) };
    await rig().exec({ metadata }, IGNORE_END);
    await killAll(subject);
    await untilSettled(subject, spec);
    await ledger.goesOn();
    expect(await ledger.end()).toEqual([]);
    await removeAll(subject, spec.id);
    expect(await subject.leftovers(spec.id)).toEqual([]);
  }));
