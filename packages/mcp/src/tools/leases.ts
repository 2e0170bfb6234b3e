/** Tools for leases: copies of a service for tests, which end by themselves. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Schemas } from '@howdah/client';
import {
  LEASE_RESETS,
  LEASE_TTL_SECONDS,
  MAX_LEASES,
  MAX_LEASE_TTL_SECONDS,
} from '@howdah/contract';
import { placeOf, uriOf } from '@howdah/contract/connect';
import { Type } from 'typebox';
import { body, findService, type Cloud } from '../cloud.ts';
import { Problem } from '../problem.ts';
import {
  addTool,
  askedAs,
  changing,
  closed,
  service,
  WAIT_SECONDS,
  type ToolServer,
} from '../tool.ts';

type Lease = Schemas['Lease'];

const LEASES = '/projects/{project_id}/leases';
const POLL_MS = 250;

const leases = Type.Array(Type.String({ minLength: 1, maxLength: 64 }), {
  minItems: 1,
  maxItems: MAX_LEASES,
  uniqueItems: true,
  description: 'their ids, from take_lease or list_leases',
});
const ttlSeconds = (description: string) =>
  Type.Integer({ minimum: 1, maximum: MAX_LEASE_TTL_SECONDS, description });

export function addLeaseTools(server: ToolServer, cloud: Cloud): void {
  addTakeLease(server, cloud);
  addListLeases(server, cloud);
  addExtendLease(server, cloud);
  addReturnLease(server, cloud);
}

function addTakeLease(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'take_lease',
    {
      title: 'Take copies of a service for tests',
      description:
        'Takes copies of a service with its data, which are removed by themselves at their end. ' +
        'Cost: that of fork_service for the first ones, the next ones are ready at once. The ' +
        'answer contains a password and a connection string for each, once. return_lease when ' +
        'done; extend_lease if the tests take longer.',
      kind: 'make',
      input: Type.Object(
        {
          service,
          count: Type.Optional(
            Type.Integer({ minimum: 1, maximum: MAX_LEASES, default: 1, description: 'how many' }),
          ),
          ttl_seconds: Type.Optional(
            ttlSeconds(`they end after so many seconds; default: ${LEASE_TTL_SECONDS}`),
          ),
          reset: Type.Optional(
            Type.Enum([...LEASE_RESETS], {
              description:
                'server (default): each is a server of its own, where execute works; database: ' +
                'databases in one server that they share, which takes less memory',
            }),
          ),
          ...changing,
        },
        closed,
      ),
    },
    async (args, signal) => {
      const { count, ttl_seconds, reset } = args;
      const { service_id: from, name } = await findService(cloud, args.service);
      const path = { project_id: await cloud.projectId() };
      const taken = body(
        await cloud.client.POST(LEASES, {
          params: { path, ...askedAs(args) },
          body: {
            from,
            ...(count === undefined ? {} : { count }),
            ...(ttl_seconds === undefined ? {} : { ttl_seconds }),
            ...(reset === undefined ? {} : { reset }),
          },
          signal,
        }),
      ).leases;
      const now = await untilReady(cloud, taken, signal);
      const late = now.filter(({ ready }) => !ready).length;
      return {
        summary:
          `Leases of ${name}: ${now.map(inWords).join(', ')}. Keep the passwords: they are shown ` +
          `once.${late === 0 ? '' : ` ${late} are not ready yet: list_leases.`}`,
        data: { leases: now.map((lease) => withSecret(cloud, lease)) },
      };
    },
  );
}

/**
 * Waits until leases are ready. Their passwords are in the first answer only, so that is kept
 * whatever happens to the next ones.
 */
async function untilReady(
  cloud: Cloud,
  taken: readonly Lease[],
  signal: AbortSignal,
): Promise<readonly Lease[]> {
  const begunMs = performance.now();
  let now = taken;
  try {
    while (now.some(({ ready }) => !ready) && performance.now() - begunMs < WAIT_SECONDS * 1000) {
      await sleep(POLL_MS, undefined, { signal });
      const found = new Map((await readLeases(cloud)).map((lease) => [lease.id, lease]));
      now = taken.map((lease) => ({ ...lease, ...found.get(lease.id) }));
      // Those that have ended do not become ready.
      if (taken.every(({ id }) => !found.has(id))) break;
    }
  } catch {
    return now;
  }
  return now;
}

/** A lease with the connection string, for the answer that has its password. */
function withSecret({ passwords }: Cloud, { initial_password: password = '', ...lease }: Lease) {
  const { endpoint, role: user, database, service_id, reset } = lease;
  if (reset === 'server') passwords.keep(service_id, password);
  const connection_string = uriOf({ ...endpoint, user, database, ca: null }, password);
  return { ...lease, password, connection_string };
}

function addListLeases(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'list_leases',
    {
      title: 'List leases',
      description:
        'The leases of the project, oldest first: of which service, by which key, whether they ' +
        'are ready, and when they end. Free. Passwords are never shown again.',
      kind: 'read',
      input: Type.Object({}, closed),
    },
    async () => {
      const found = await readLeases(cloud);
      return { summary: found.map(inWords).join(', ') || 'No leases.', data: { leases: found } };
    },
  );
}

function addExtendLease(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'extend_lease',
    {
      title: 'Extend leases',
      description:
        'Has leases end so many seconds from now, in place of the end that they had. A fork-only ' +
        'key extends those that it took. Free.',
      kind: 'change',
      input: Type.Object(
        { leases, ttl_seconds: ttlSeconds('they end so many seconds from now'), ...changing },
        closed,
      ),
    },
    async (args, signal) => {
      const left = body(
        await cloud.client.POST(`${LEASES}/extend`, {
          params: { path: { project_id: await cloud.projectId() }, ...askedAs(args) },
          body: { lease_ids: args.leases, ttl_seconds: args.ttl_seconds },
          signal,
        }),
      ).leases;
      const ended = args.leases.filter((id) => left.every((lease) => lease.id !== id));
      if (left.length === 0)
        throw new Problem(
          `these leases have ended: ${ended.join(', ')}`,
          'list_leases shows those that are left; take_lease takes others',
          'NOT_FOUND',
        );
      return {
        summary: `Extended: ${left.map(inWords).join(', ')}.${endedBefore(ended)}`,
        data: { leases: left, ended },
      };
    },
  );
}

function addReturnLease(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'return_lease',
    {
      title: 'Return leases',
      description:
        'Ends leases now: their data is removed for good. Only the key that took a lease, or an ' +
        'admin key, may do so. Ask the user before you return one that is not your own.',
      kind: 'destroy',
      input: Type.Object({ leases, ...changing }, closed),
    },
    async (args, signal) => {
      const returned = body(
        await cloud.client.POST(`${LEASES}/return`, {
          params: { path: { project_id: await cloud.projectId() }, ...askedAs(args) },
          body: { lease_ids: args.leases },
          signal,
        }),
      ).leases.map(({ id }) => id);
      const ended = args.leases.filter((id) => !returned.includes(id));
      return {
        summary: `Returned: ${returned.join(', ') || 'none'}.${endedBefore(ended)}`,
        data: { returned, ended },
      };
    },
  );
}

async function readLeases({ client, projectId }: Cloud): Promise<Lease[]> {
  return body(await client.GET(LEASES, { params: { path: { project_id: await projectId() } } }));
}

const endedBefore = (ids: readonly string[]): string =>
  ids.length === 0 ? '' : ` These had ended: ${ids.join(', ')}.`;

const inWords = ({ id, from, endpoint, database, ready, problem, expires_at: end }: Lease) =>
  `${id} of ${from} at ${placeOf(endpoint)}/${database}` +
  `${ready ? '' : `, ${problem ?? 'not ready'}`}${end === undefined ? '' : `, until ${end}`}`;
