import { expect, test } from 'vitest';
import { EngineUnavailable } from '../engine.ts';
import {
  ID,
  NAMESPACE,
  newSpec,
  openCloud,
  runServers,
  untilAwaited,
  untilStep,
} from './engine.testing.ts';
import { resourcesIn } from './usage.ts';

test('the figures of a pod are the sum over its containers', () => {
  const containers = [
    { usage: { cpu: '250m', memory: '2Mi' } },
    { usage: { cpu: '1500000n', memory: '1024Ki' } },
    { usage: { cpu: 'much', memory: '-1' } },
  ];
  expect(resourcesIn({ containers })).toEqual({ cpuMillis: 252, memoryBytes: 3 * 1024 * 1024 });
});

test('usage names missing figures of the pod, then a server that does not answer', async () => {
  const cloud = await openCloud();
  try {
    const { observe } = cloud.engine;
    await expect(observe.usage(ID)).rejects.toThrow(EngineUnavailable);
    const spec = await newSpec(cloud);
    await untilAwaited(cloud, spec);
    runServers(cloud);
    await untilStep(cloud, spec, 'settled');
    await expect(observe.usage(ID)).rejects.toThrow('they come from metrics-server');
    const path = `/apis/metrics.k8s.io/v1beta1${NAMESPACE}/pods/s-${ID}-1`;
    cloud.fake.put(path, { containers: [{ usage: { cpu: '1m', memory: '1Mi' } }] });
    await expect(observe.usage(ID)).rejects.toThrow(EngineUnavailable);
    await expect(observe.usage(ID)).rejects.not.toThrow('they come from metrics-server');
  } finally {
    await cloud.close();
  }
});
