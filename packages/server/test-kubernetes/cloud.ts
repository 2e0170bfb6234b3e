/** The cluster, and the operator in it, that all tests of a file share. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Installation } from '../test/harness.ts';
import { makePoolerImage } from './image.ts';
import { startMetricsServer } from './metrics-server.ts';
import { startOperator, type Operator } from './operator/operator.ts';
import { realOperatorFiles, realPluginFiles, startRealOperator } from './real-operator.ts';
import { openRig, type Rig } from './rig.ts';
import { startS3, type S3 } from './s3.ts';
import { untilExpected } from '../test/until.ts';

type Opened = Readonly<{
  rig: Rig;
  operator: Operator;
  poolerImage: string;
  s3: S3;
  closeMetrics: () => Promise<void>;
}>;

/** On the address of this machine for the node, which no other run has. */
const S3_PORT = 7070;

let opened: Opened | null = null;

/** A test with faults of the operator, which only the double can have. */
export const testWithDouble = realOperatorFiles === null ? test : test.skip;

/** Whether the cluster has the Barman Cloud plugin, or its double. */
export const hasPlugin = realOperatorFiles === null || realPluginFiles !== null;

/** A test with it. */
export const testWithPlugin = hasPlugin ? test : test.skip;

export async function setUp(): Promise<void> {
  const rig = await openRig();
  const poolerImage = await importPoolerImage(rig);
  const operator =
    realOperatorFiles === null
      ? await startOperator(rig.connection, rig.image, rig.exec)
      : await startRealOperator(rig, realOperatorFiles);
  const closeMetrics = await startMetricsServer(operator.api, rig.machineHost);
  const s3 = await startS3(rig.machineHost, S3_PORT);
  opened = { rig, operator, poolerImage, s3, closeMetrics };
}

/** @returns its name */
async function importPoolerImage(rig: Rig): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'hd-'));
  try {
    const { name, archive } = await makePoolerImage(directory);
    await rig.inNode('ctr', '--namespace', 'k8s.io', 'images', 'import', archive);
    return name;
  } finally {
    await rm(directory, { recursive: true });
  }
}

export async function tearDown(): Promise<void> {
  await opened?.closeMetrics();
  await opened?.s3.close();
  await opened?.operator.close();
}

function openedOrThrow() {
  if (opened === null) throw new Error('the cluster is opened by beforeAll');
  return opened;
}

export const rig = (): Rig => openedOrThrow().rig;
/** An image of PgBouncer that the node has. */
export const poolerImage = (): string => openedOrThrow().poolerImage;
/** An object store that the cluster reaches. */
export const s3 = (): S3 => openedOrThrow().s3;
export const operator = (): Operator => openedOrThrow().operator;

/** Waits until the integrity check of an installation finds nothing. */
export const untilSound = ({ audit }: Pick<Installation, 'audit'>): Promise<void> =>
  untilExpected('the integrity check finds nothing', async () => expect(await audit()).toEqual([]));
