/** VPC and connection pooler of a service. */
import { ApiError } from '@howdah/contract';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { refuseWithSleep } from './auto-suspend.ts';
import { amendAnswer, type Caller } from './change.ts';
import { type Done, untilDone } from './completion.ts';
import type { ControlContext } from './control-context.ts';
import { poolerColumns } from './endpoints.ts';
import { changeUnderRules } from './service-rules.ts';
import { joinVpc, leaveVpc } from './vpcs.ts';
import type { Tx } from '../store/tables.ts';

export async function attachToVpc(
  context: ControlContext,
  caller: Caller,
  id: string,
  vpcId: string,
): Promise<Done> {
  const decide = async (service: ServiceRow, tx: Tx): Promise<ServiceChange | null> => {
    if (service.vpc_id === vpcId) return null;
    if (service.vpc_id !== null)
      throw new ApiError(
        'CONFLICT',
        `the service is in the VPC ${service.vpc_id}; detach it first (detachFromVpc)`,
      );
    refuseWithSleep(service, 'VPC');
    return joinVpc(tx, context.regions.of(service.region_code), caller.projectId, service, vpcId);
  };
  const { operationId } = await changeUnderRules(
    context,
    caller,
    id,
    'attachToVPC',
    decide,
    'attachToVPC',
  );
  return answerInWords(
    context,
    caller,
    operationId,
    operationId === null
      ? `the service is in the VPC ${vpcId}`
      : `the service is being attached to the VPC ${vpcId}`,
  );
}

export async function detachFromVpc(
  context: ControlContext,
  caller: Caller,
  id: string,
  vpcId: string | null,
): Promise<Done> {
  const decide = (service: ServiceRow, tx: Tx): Promise<ServiceChange> | null => {
    if (service.vpc_id === null) return null;
    if (vpcId !== null && service.vpc_id !== vpcId)
      throw new ApiError(
        'CONFLICT',
        `vpc_id: found ${JSON.stringify(vpcId)}; the service is in the VPC ${service.vpc_id}`,
      );
    return leaveVpc(tx, service);
  };
  const { operationId } = await changeUnderRules(
    context,
    caller,
    id,
    'detachFromVPC',
    decide,
    'detachFromVPC',
  );
  return answerInWords(
    context,
    caller,
    operationId,
    operationId === null
      ? 'the service is in no VPC'
      : 'the service is being detached from its VPC',
  );
}

/** Sets the message of the answer, also for repeated calls with the same Idempotency-Key. */
export async function answerInWords(
  context: ControlContext,
  caller: Caller,
  operationId: string | null,
  message: string,
): Promise<Done> {
  const done = { message, operationId };
  await amendAnswer(context.store, caller, done);
  return done;
}

export async function enableServicePooler(
  context: ControlContext,
  caller: Caller,
  id: string,
): Promise<Done> {
  const decide = (service: ServiceRow, tx: Tx) => {
    const region = context.regions.of(service.region_code);
    if (service.pooler) return null;
    refuseWithSleep(service, 'connection pooler');
    return poolerColumns(region, service, tx);
  };
  return untilDone(
    context.store,
    caller,
    await changeUnderRules(context, caller, id, 'enablePooler', decide, 'enablePooler'),
    'the connection pooler is enabled',
  );
}

export async function disableServicePooler(
  context: ControlContext,
  caller: Caller,
  id: string,
): Promise<Done> {
  const decide = (service: ServiceRow) => (service.pooler ? { pooler: false } : null);
  return untilDone(
    context.store,
    caller,
    await changeUnderRules(context, caller, id, 'disablePooler', decide, 'disablePooler'),
    'the connection pooler is disabled',
  );
}
