/** The cluster, and the operator in it, that all tests of a file share. */
import { test } from 'vitest';
import { startMetricsServer } from './metrics-server.ts';
import { startOperator, type Operator } from './operator/operator.ts';
import { realOperatorFiles, startRealOperator } from './real-operator.ts';
import { openRig, type Rig } from './rig.ts';

type Opened = Readonly<{ rig: Rig; operator: Operator; closeMetrics: () => Promise<void> }>;

let opened: Opened | null = null;

/** A test with faults of the operator, which only the double can have. */
export const testWithDouble = realOperatorFiles === null ? test : test.skip;

export async function setUp(): Promise<void> {
  const rig = await openRig();
  const operator =
    realOperatorFiles === null
      ? await startOperator(rig.connection, rig.image, rig.exec)
      : await startRealOperator(rig, realOperatorFiles);
  const closeMetrics = await startMetricsServer(operator.api, rig.machineHost);
  opened = { rig, operator, closeMetrics };
}

export async function tearDown(): Promise<void> {
  await opened?.closeMetrics();
  await opened?.operator.close();
}

function openedOrThrow() {
  if (opened === null) throw new Error('the cluster is opened by beforeAll');
  return opened;
}

export const rig = (): Rig => openedOrThrow().rig;
export const operator = (): Operator => openedOrThrow().operator;
