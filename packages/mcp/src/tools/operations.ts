import { setTimeout as sleep } from 'node:timers/promises';
import type { Schemas } from '@howdah/client';
import { OPERATION_STATUSES } from '@howdah/contract';
import { Type } from 'typebox';
import { body, findService, type Cloud } from '../cloud.ts';
import {
  addTool,
  askedAs,
  changing,
  closed,
  service,
  WAIT_SECONDS,
  type Outcome,
  type ToolServer,
} from '../tool.ts';

type Operation = Schemas['Operation'];

const operation_id = Type.String({
  minLength: 1,
  maxLength: 64,
  description: 'its id, from list_operations or the answer to a change',
});
const POLL_MS = 250;

export function addOperationTools(server: ToolServer, cloud: Cloud): void {
  addListOperations(server, cloud);
  addGetOperation(server, cloud);
  addWaitForOperation(server, cloud);
  addCancelOperation(server, cloud);
}

function addListOperations(server: ToolServer, cloud: Cloud): void {
  const { client, projectId } = cloud;
  addTool(
    server,
    'list_operations',
    {
      title: 'Finished and running operations',
      description:
        'Every change is an operation with steps, newest first. Free. ' +
        'Look here when something fails or takes long, or to see who did what.',
      kind: 'read',
      input: Type.Object(
        {
          service: Type.Optional(service),
          status: Type.Optional(Type.Enum([...OPERATION_STATUSES])),
          limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100, default: 10 })),
        },
        closed,
      ),
    },
    async ({ service: wanted, status, limit = 10 }) => {
      const service_id =
        wanted === undefined ? undefined : (await findService(cloud, wanted)).service_id;
      const operations = body(
        await client.GET('/projects/{project_id}/operations', {
          params: {
            path: { project_id: await projectId() },
            query: {
              limit: String(limit),
              ...(service_id === undefined ? {} : { service_id }),
              ...(status === undefined ? {} : { status }),
            },
          },
        }),
      );
      return {
        summary: operations.map(inWords).join('; ') || 'No operations.',
        data: { operations },
      };
    },
  );
}

function addGetOperation(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'get_operation',
    {
      title: 'Show an operation',
      description:
        'Its steps, its error and, while it runs, about how many seconds it still takes. Free.',
      kind: 'read',
      input: Type.Object({ operation_id }, closed),
    },
    async (args) => about(await read(cloud, args.operation_id)),
  );
}

function addWaitForOperation(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'wait_for_operation',
    {
      title: 'Wait for an operation',
      description:
        'Waits until an operation has succeeded or failed. Free, and better than polling.',
      kind: 'read',
      input: Type.Object(
        {
          operation_id,
          wait_seconds: Type.Optional(
            Type.Integer({ minimum: 1, maximum: 300, default: WAIT_SECONDS }),
          ),
        },
        closed,
      ),
    },
    async ({ operation_id: id, wait_seconds = WAIT_SECONDS }, signal) => {
      const begunMs = performance.now();
      for (;;) {
        const operation = await read(cloud, id, signal);
        const ended = operation.status === 'succeeded' || operation.status === 'failed';
        if (ended || performance.now() - begunMs > wait_seconds * 1000) return about(operation);
        await sleep(POLL_MS, undefined, { signal });
      }
    },
  );
}

function addCancelOperation(server: ToolServer, cloud: Cloud): void {
  const { client, projectId } = cloud;
  addTool(
    server,
    'cancel_operation',
    {
      title: 'Cancel an operation',
      description:
        'Possible where it is safe: a verify_backup that is running, ' +
        'a drill or switchover that has not begun. Others continue; ' +
        'the answer says what to do instead.',
      kind: 'change',
      input: Type.Object({ operation_id, ...changing }, closed),
    },
    async (args, signal) =>
      about(
        body(
          await client.POST('/projects/{project_id}/operations/{operation_id}/cancel', {
            params: {
              path: { project_id: await projectId(), operation_id: args.operation_id },
              ...askedAs(args),
            },
            signal,
          }),
        ),
      ),
  );
}

async function read(
  { client, projectId }: Cloud,
  id: string,
  signal?: AbortSignal,
): Promise<Operation> {
  return body(
    await client.GET('/projects/{project_id}/operations/{operation_id}', {
      params: { path: { project_id: await projectId(), operation_id: id } },
      ...(signal === undefined ? {} : { signal }),
    }),
  );
}

const inWords = ({ id, kind, service_id, status, error }: Operation): string =>
  `${kind} of ${service_id} ${status}${error === undefined ? '' : `: ${error}`} (${id})`;

function about(operation: Operation): Outcome {
  return { summary: `${inWords(operation)}.`, data: { ...operation } };
}
