/**
 * How long a client cannot write when the primary of a synchronous pair is killed: on Kubernetes,
 * where CloudNativePG fails over, beside a pair on this machine.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Type } from 'typebox';
import { clusterName, namespaceOf } from '../packages/server/src/engine/kubernetes/names.ts';
import { CLUSTERS, pathIn } from '../packages/server/test-kubernetes/operator/cluster.ts';
import { createWithTable, firstWrite, injectFault } from './failover.ts';
import type { Bench } from './lib/bench.ts';
import { remove, type Cloud, type Service } from './lib/cloud.ts';
import { IN_REGION, openKube, openKubeCloud, operatorInWords, type Kube } from './lib/kube.ts';
import { idle, interleave, measured, stopwatch, valuesOf, type Sample } from './lib/measure.ts';
import { bounded, compared, skipped } from './lib/table.ts';

const TITLE = 'Kubernetes: writes are not possible while another member takes over';
const RETRY_MS = 20;

export const kubeFailover: Bench = {
  name: 'kube-failover',
  title: TITLE,
  run: async ({ here, rounds }) => {
    const kube = await openKube();
    if (typeof kube === 'string') return [skipped('K', TITLE, kube)];
    const settings = { HOWDAH_FAILOVER_COOLDOWN_SECONDS: '0' };
    const cloud = await openKubeCloud(kube, here.directory, settings);
    const there = await createWithTable(cloud, IN_REGION, cloud.host);
    const ours = await createWithTable(cloud);
    try {
      const onKubernetes = measured(() => killPrimary(kube, cloud, there));
      const onMachine = measured(() => injectFault(cloud, ours, 'SIGKILL'));
      await interleave(rounds, [onKubernetes, onMachine]);
      // Each is soon after the one before: Kubernetes pauses before it starts a container again.
      const switchover = measured(() => switchOver(kube, cloud, there));
      await interleave(rounds, [switchover]);
      return [
        compared({
          goal: 'K',
          what: `pod of the primary deleted without grace → write accepted, ${operatorInWords()}`,
          unit: 'ms',
          ours: valuesOf(onKubernetes),
          against: 'a pair on this machine, kill -9 of the primary',
          theirs: valuesOf(onMachine),
          ratio: 'ours/theirs',
          bound: null,
          limit: 'the failover is that of the operator',
        }),
        bounded({
          goal: 'K',
          what: `the longest wait of a writer during a switchover, ${operatorInWords()}`,
          unit: 'ms',
          ours: valuesOf(switchover),
          bound: null,
          limit: 'a write waits until the former primary is back as the only, synchronous standby',
        }),
      ];
    } finally {
      await remove(cloud, there.id);
      await cloud.end();
    }
  },
};

const CLUSTER = Type.Object({
  status: Type.Object({
    currentPrimary: Type.Optional(Type.String()),
    readyInstances: Type.Optional(Type.Number()),
  }),
});

/** Access of both faults to the Cluster: its status, and a write over a new session. */
function accessTo(kube: Kube, cloud: Cloud, service: Service) {
  const { api } = kube.operator;
  const namespace = namespaceOf(cloud.projectId);
  const path = `${CLUSTERS}/namespaces/${namespace}/clusters/${clusterName(service.id)}`;
  const status = async () => (await api.read(path, CLUSTER)).status;
  const write = () => firstWrite(cloud.ca, [service.port], service.password, RETRY_MS, cloud.host);
  return {
    namespace,
    write,
    /** @returns the pod of the primary, once the standby has all that was written */
    primary: async (): Promise<string> => {
      while ((await status()).readyInstances !== 2) await sleep(100);
      await write();
      await idle();
      return (await status()).currentPrimary ?? '';
    },
    untilOther: async (primary: string): Promise<void> => {
      while ((await status()).currentPrimary === primary) await sleep(RETRY_MS);
    },
  };
}

async function killPrimary(kube: Kube, cloud: Cloud, service: Service): Promise<Sample> {
  const access = accessTo(kube, cloud, service);
  const primary = await access.primary();
  const watch = stopwatch();
  await kube.operator.api.remove(pathIn(access.namespace, 'pods', primary), 0);
  // A killed primary may acknowledge for some ms more: only sessions at the new one count.
  await access.untilOther(primary);
  watch.lap('another primary');
  await access.write();
  watch.lap('session, write');
  return watch.sample();
}

/** @returns the longest time between two writes of a client that opens a session for each */
async function switchOver(kube: Kube, cloud: Cloud, service: Service): Promise<Sample> {
  const access = accessTo(kube, cloud, service);
  const primary = await access.primary();
  let isOver = false;
  let longestMs = 0;
  const writing = (async () => {
    for (let lastMs = performance.now(); !isOver; await sleep(RETRY_MS)) {
      await access.write();
      longestMs = Math.max(longestMs, performance.now() - lastMs);
      lastMs = performance.now();
    }
  })();
  try {
    const { code, stderr } = await cloud.cli('service', 'switchover', service.id);
    if (code !== 0) throw new Error(stderr);
    await access.untilOther(primary);
    await access.write();
  } finally {
    isOver = true;
  }
  await writing;
  return { value: longestMs, parts: {} };
}
