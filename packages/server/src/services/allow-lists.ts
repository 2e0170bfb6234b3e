/** Changes of allow lists, and of the services that they are attached to. */
import {
  ApiError,
  isId,
  MAX_ALLOW_LISTS,
  type CreateAllowListBody,
  type UpdateAllowListBody,
  type AllowList,
} from '@howdah/contract';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { parseCidrBlock } from '../lib/cidr.ts';
import {
  deleteAllowListRow,
  findAllowList,
  insertAllowList,
  lockAllowList,
  updateAllowListRow,
  type AllowListRow,
} from '../store/allow-lists.ts';
import { lockAndCount, servicesWith } from '../store/resources.ts';
import { changeService, lockService } from '../store/services.ts';
import type { Db, Tx } from '../store/tables.ts';
import { answerWith, makeChange, type Caller, type Outcome } from './change.ts';
import type { Done } from './completion.ts';
import type { ControlContext } from './control-context.ts';
import { answerInWords } from './service-network.ts';
import { changeUnderRules } from './service-rules.ts';

/** @throws ApiError NOT_FOUND */
export async function readAllowList(db: Db, projectId: string, id: string): Promise<AllowListRow> {
  const found = isId(id) ? await findAllowList(db, projectId, id) : null;
  if (found === null) throw allowListNotFound(id);
  return found;
}

/** @throws ApiError NOT_FOUND */
async function lockOrRefuse(
  tx: Tx,
  projectId: string,
  id: string,
  how: 'share' | 'update',
): Promise<AllowListRow> {
  // PostgreSQL refuses a text with a NUL.
  const found = isId(id) ? await lockAllowList(tx, projectId, id, how) : null;
  if (found === null) throw allowListNotFound(id);
  return found;
}

function allowListNotFound(id: string): ApiError {
  return new ApiError(
    'NOT_FOUND',
    `no allow list with that id exists: ${JSON.stringify(id.slice(0, 64))}; ` +
      'GET /projects/{project_id}/allow-lists lists them',
  );
}

/** The networks of a body, each once, in their canonical spelling. */
function networksOrRefuse(blocks: readonly string[]): string[] {
  const networks = blocks.map((block, index) => {
    const parsed = parseCidrBlock(block);
    if ('problem' in parsed)
      throw new ApiError('INVALID_REQUEST', `cidr_blocks[${index}]: ${parsed.problem}`);
    return parsed.network;
  });
  return [...new Set(networks)];
}

export function createAllowList(
  { store }: ControlContext,
  caller: Caller,
  { description, cidr_blocks: blocks }: CreateAllowListBody,
): Promise<Outcome> {
  const cidr_blocks = networksOrRefuse(blocks);
  return makeChange(store, caller, async (tx) => {
    const count = await lockAndCount(tx, 'allow_lists', caller.projectId);
    if (count >= MAX_ALLOW_LISTS)
      throw new ApiError(
        'LIMIT_EXCEEDED',
        `allow lists: the project has ${count}, of ${MAX_ALLOW_LISTS} that are allowed; ` +
          'delete one first',
      );
    const made = await insertAllowList(tx, caller.projectId, { description, cidr_blocks });
    return answerWith(allowListDocument(made));
  });
}

/** Changes an allow list. Its services follow as soon as the change is committed. */
export function updateAllowList(
  { store }: ControlContext,
  caller: Caller,
  id: string,
  body: UpdateAllowListBody,
): Promise<Outcome> {
  const blocks = body.cidr_blocks === undefined ? null : networksOrRefuse(body.cidr_blocks);
  return makeChange(store, caller, async (tx) => {
    const list = await lockOrRefuse(tx, caller.projectId, id, 'update');
    const changed = {
      description: body.description ?? list.description,
      cidr_blocks: blocks ?? list.cidr_blocks,
    };
    return answerWith(allowListDocument(await updateAllowListRow(tx, list.id, changed)));
  });
}

/** Deletes an allow list that no service has. Deleted services lose it. */
export function deleteAllowList(
  { store }: ControlContext,
  caller: Caller,
  id: string,
): Promise<Outcome> {
  return makeChange(store, caller, async (tx) => {
    const { id: listId } = await readAllowList(tx, caller.projectId, id);
    // Services before lists: the order of all transactions that lock both.
    for (const service of await servicesWith(tx, 'allow_list_id', listId))
      if (!service.isListed) await takeListFromDeleted(tx, service.id);
    await lockOrRefuse(tx, caller.projectId, listId, 'update');
    // The lock keeps new services out: this list is complete.
    const services = await servicesWith(tx, 'allow_list_id', listId);
    if (services.length > 0) throw attachedError(listId, services);
    await deleteAllowListRow(tx, listId);
    return { operationId: null };
  });
}

const MOST_NAMED = 10;

function attachedError(id: string, services: readonly { id: string; name: string }[]): ApiError {
  const named = services.slice(0, MOST_NAMED).map((one) => `${one.id} (${one.name})`);
  const more = services.length - named.length;
  const all = more > 0 ? [...named, `${more} more`] : named;
  return new ApiError(
    'CONFLICT',
    `the allow list ${id} is attached to ${all.join(', ')}; ` +
      'detach it from them first (detachFromAllowList)',
  );
}

/**
 * Takes the allow list from a deleted service. It can still be restored, and must not accept all
 * clients unasked: it comes back paused.
 */
async function takeListFromDeleted(tx: Tx, serviceId: string): Promise<void> {
  const locked = await lockService(tx, serviceId);
  if (locked === null || locked.service.allow_list_id === null) return;
  const { service, operation } = locked;
  if (service.deleted_at === null && service.project_id !== null) return;
  const change: ServiceChange =
    service.vpc_id === null ? { allowed_networks: null, power: 'paused' } : {};
  await changeService(tx, service, { allow_list_id: null, ...change }, operation);
}

/** Attaches an allow list to a service, in place of the one that it has. */
export async function attachToAllowList(
  context: ControlContext,
  caller: Caller,
  id: string,
  listId: string,
): Promise<Done> {
  const decide = (service: ServiceRow, tx: Tx): Promise<ServiceChange> | null =>
    service.allow_list_id === listId ? null : useAllowList(tx, caller.projectId, service, listId);
  const kind = 'attachToAllowList';
  const { operationId } = await changeUnderRules(context, caller, id, kind, decide, kind);
  return answerInWords(
    context,
    caller,
    operationId,
    operationId === null
      ? `the service has the allow list ${listId}`
      : `the allow list ${listId} is being attached to the service`,
  );
}

/** Detaches an allow list: the endpoint of the service accepts all clients again. */
export async function detachFromAllowList(
  context: ControlContext,
  caller: Caller,
  id: string,
  listId: string,
): Promise<Done> {
  const decide = async (service: ServiceRow, tx: Tx): Promise<ServiceChange> => {
    await readAllowList(tx, caller.projectId, listId);
    const found = service.allow_list_id;
    if (found !== listId)
      throw new ApiError(
        'CONFLICT',
        `allow_list_id: found ${JSON.stringify(listId)}; the service has ` +
          (found === null ? 'no allow list' : `the allow list ${found}`),
      );
    return { allow_list_id: null, ...(service.vpc_id === null ? { allowed_networks: null } : {}) };
  };
  const kind = 'detachFromAllowList';
  const { operationId } = await changeUnderRules(context, caller, id, kind, decide, kind);
  return answerInWords(
    context,
    caller,
    operationId,
    `the allow list ${listId} is being detached from the service`,
  );
}

/**
 * The columns of a locked service that gets an allow list. In a VPC the networks of the VPC hold.
 *
 * @throws ApiError when the project has no such list
 */
export async function useAllowList(
  tx: Tx,
  projectId: string,
  service: Pick<ServiceRow, 'vpc_id'>,
  listId: string,
): Promise<ServiceChange> {
  const list = await lockOrRefuse(tx, projectId, listId, 'share');
  return {
    allow_list_id: list.id,
    ...(service.vpc_id === null ? { allowed_networks: list.cidr_blocks } : {}),
  };
}

// Allow lists as the API answers them.

type AllowListColumns = {
  id: string;
  project_id: string;
  description: string;
  cidr_blocks: string[];
  created: Date;
};

export function allowListDocument(row: AllowListColumns): AllowList {
  return {
    allow_list_id: row.id,
    project_id: row.project_id,
    description: row.description,
    cidr_blocks: row.cidr_blocks,
    created_at: row.created.toISOString(),
  };
}
