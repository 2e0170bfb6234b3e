/** The cluster, and the operator double in it, that all tests of a file share. */
import { startOperator, type Operator } from './operator/operator.ts';
import { openRig, type Rig } from './rig.ts';

let opened: Readonly<{ rig: Rig; operator: Operator }> | null = null;

export async function setUp(): Promise<void> {
  const rig = await openRig();
  opened = { rig, operator: await startOperator(rig.connection, rig.image, rig.exec) };
}

export async function tearDown(): Promise<void> {
  await opened?.operator.close();
}

function openedOrThrow() {
  if (opened === null) throw new Error('the cluster is opened by beforeAll');
  return opened;
}

export const rig = (): Rig => openedOrThrow().rig;
export const operator = (): Operator => openedOrThrow().operator;
