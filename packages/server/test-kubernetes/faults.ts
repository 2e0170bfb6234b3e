/** Faults of a cluster, of its operator and of others who change its objects. */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { removeAll, settle } from '../src/engine/conformance/subject.ts';
import type { Verdict } from '../src/engine/engine.ts';
import { clusterName, namespaceOf } from '../src/engine/kubernetes/manifests/names.ts';
import type { ServiceSpec } from '../src/engine/spec.ts';
import { operator, rig } from './cloud.ts';
import { CLUSTERS } from './operator/cluster.ts';
import { createKubernetesSubject, type KubernetesSubject } from './subject.ts';

const paused = (spec: ServiceSpec): ServiceSpec => ({ ...spec, power: 'paused' });
const larger = (spec: ServiceSpec): ServiceSpec => ({
  ...spec,
  size: { cpuMillis: 750, memoryGbs: 3 },
});

const pathOf = ({ projectId }: KubernetesSubject, { id }: ServiceSpec): string =>
  `${CLUSTERS}/namespaces/${namespaceOf(projectId)}/clusters/${clusterName(id)}`;

/** @param image of PostgreSQL; none: that of the rig */
async function withSubject(
  work: (subject: KubernetesSubject) => Promise<void>,
  image?: string,
): Promise<void> {
  const subject = await createKubernetesSubject(rig(), operator().api, image);
  try {
    await work(subject);
  } finally {
    await subject.destroy();
  }
}

/** Makes steps until a verdict is as wanted. The engine notices changes of others later. */
async function converge(
  { engine }: KubernetesSubject,
  spec: ServiceSpec,
  isWanted: (verdict: Verdict) => boolean,
): Promise<Verdict> {
  for (;;) {
    const verdict = await engine.lifecycle.converge(spec, async () => undefined);
    if (isWanted(verdict)) return verdict;
    if (verdict.outcome === 'failed') throw new Error(JSON.stringify(verdict));
    await sleep(verdict.outcome === 'again' ? verdict.waitMs : 100);
  }
}

const reasonOf = (verdict: Verdict): string =>
  verdict.outcome === 'failed' ? verdict.reason : `no failure: ${JSON.stringify(verdict)}`;

describe.concurrent('a service', () => {
  test('says which image cannot be pulled, and can be removed', () =>
    withSubject(async (subject) => {
      const spec = await subject.newSpec();
      const failed = await converge(subject, spec, ({ outcome }) => outcome === 'failed');
      expect(reasonOf(failed)).toMatch(/start PostgreSQL: .*(ErrImagePull|ImagePullBackOff)/);
      await removeAll(subject, spec.id);
      expect(await subject.leftovers(spec.id)).toEqual([]);
    }, 'localhost/howdah/missing:17'));

  test('says who else manages a field, and goes on once that is over', () =>
    withSubject(async (subject) => {
      const spec = await subject.newSpec();
      await settle(subject, spec);
      const path = pathOf(subject, spec);
      const { api } = operator();
      const change = (memory: string) =>
        api.merge(`${path}?fieldManager=somebody`, {
          spec: { resources: { limits: { memory }, requests: { memory } } },
        });
      await change('1536Mi');
      const failed = await converge(subject, larger(spec), ({ outcome }) => outcome === 'failed');
      expect(reasonOf(failed)).toContain('somebody');
      await change('3Gi');
      await settle(subject, larger(spec));
      await removeAll(subject, spec.id);
    }));

  test('that somebody has deleted is not created again, empty', () =>
    withSubject(async (subject) => {
      const spec = await subject.newSpec();
      await settle(subject, spec);
      await operator().api.remove(pathOf(subject, spec));
      const known = { ...spec, provisioned: true };
      const failed = await converge(subject, known, ({ outcome }) => outcome === 'failed');
      expect(reasonOf(failed)).toContain('its Cluster is gone, with its data');
      await removeAll(subject, spec.id);
      expect(await subject.leftovers(spec.id)).toEqual([]);
    }));
});

test('an operator that is stuck, or reports an unknown phase, delays a start', () =>
  withSubject(async (subject) => {
    const { faults } = operator();
    const spec = await subject.newSpec();
    faults.isStuck = true;
    try {
      const waits = await converge(
        subject,
        spec,
        ({ detail }) => detail?.includes('CloudNativePG: ') === true,
      );
      expect(waits).toMatchObject({ outcome: 'again', detail: 'CloudNativePG: no answer yet' });
      faults.phase = 'Rebalancing the moon';
      faults.isStuck = false;
      await converge(
        subject,
        spec,
        ({ detail }) => detail === 'CloudNativePG: Rebalancing the moon',
      );
    } finally {
      Object.assign(faults, { isStuck: false, phase: null });
    }
    await settle(subject, spec);
    await removeAll(subject, spec.id);
  }));

test('an API server that ends in a create and in a stop delays both', () =>
  withSubject(async (subject) => {
    const spec = await subject.newSpec();
    const { faults } = operator();
    for (const wanted of [spec, paused(spec)]) {
      // Otherwise it could be done before the API server ends.
      faults.isStuck = true;
      await converge(
        subject,
        wanted,
        ({ detail }) => detail?.startsWith('CloudNativePG: ') === true,
      );
      await rig().stopApi();
      try {
        await converge(subject, wanted, ({ detail }) => detail?.includes('no answer') === true);
        expect(await subject.engine.lifecycle.whyNoChanges()).toBe(
          'its Kubernetes cluster does not answer',
        );
      } finally {
        await rig().startApi();
        faults.isStuck = false;
      }
      await settle(subject, wanted);
    }
    await settle(subject, spec);
    expect(await subject.canLogIn(spec, subject.firstPassword)).toBe(true);
    await removeAll(subject, spec.id);
  }));
