/** Statements that read: through the API, on a service or on a temporary fork of it. */
import { HowdahError, type Schemas } from '@howdah/client';
import { Type } from 'typebox';
import { body, pathOf, readKey, settle, type Cloud, type Service } from '../cloud.ts';
import { explain, Problem } from '../problem.ts';
import type { Outcome } from '../tool.ts';

export type Query = Schemas['Query'];

/** The time limit for the fork of one statement to become READY. */
const FORK_SECONDS = 240;

export const optionalName = (description: string) =>
  Type.Optional(Type.String({ minLength: 1, maxLength: 63, description }));

/** Arguments of tools that read a database. */
export const reading = {
  database: optionalName('this database; default: tsdb'),
  on_fork: Type.Optional(
    Type.Boolean({
      description:
        'true: on a temporary fork, so that the service carries no load; ' +
        'works for a paused service, and for keys that are fork_only',
    }),
  ),
};

/** Arguments of tools that run a statement of the agent. */
export const statement = {
  sql: Type.String({
    minLength: 1,
    description: 'one statement; $1, $2, … are the parameters',
  }),
  parameters: Type.Optional(
    Type.Array(Type.Union([Type.String(), Type.Null()]), { maxItems: 100 }),
  ),
  max_rows: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 50 })),
  timeout_ms: Type.Optional(Type.Integer({ minimum: 1, maximum: 60_000, default: 10_000 })),
};

/** @throws HowdahError; Problem FORBIDDEN, with the way that a fork_only key has */
export async function query(
  cloud: Cloud,
  of: Service,
  sent: Query,
  signal: AbortSignal,
): Promise<Schemas['QueryResult']> {
  try {
    return body(
      await cloud.client.POST('/projects/{project_id}/services/{service_id}/query', {
        params: { path: pathOf(of) },
        body: sent,
        signal,
      }),
    );
  } catch (error) {
    if (!(error instanceof HowdahError) || error.code !== 'FORBIDDEN') throw error;
    const { fork_only: isForkOnly } = await readKey(cloud);
    if (isForkOnly !== true) throw error;
    throw new Problem(
      error.message,
      'call again with on_fork: true, which reads a temporary fork; ' +
        'or fork_service, and work on the fork',
      'FORBIDDEN',
    );
  }
}

/** Does work that reads a service, or on_fork a temporary fork of it. */
export async function readFrom(
  cloud: Cloud,
  found: Service,
  onFork: boolean | undefined,
  signal: AbortSignal,
  work: (of: Service) => Promise<Outcome>,
): Promise<Outcome> {
  return onFork === true ? withFork(cloud, found, signal, work) : work(found);
}

/** Does work on a temporary fork, which is deleted in any case, and reports what the fork cost. */
async function withFork(
  cloud: Cloud,
  parent: Service,
  signal: AbortSignal,
  work: (fork: Service) => Promise<Outcome>,
): Promise<Outcome> {
  const { client } = cloud;
  const begunMs = performance.now();
  const fork = body(
    await client.POST('/projects/{project_id}/services/{service_id}/forkService', {
      params: { path: pathOf(parent) },
      body: { fork_strategy: 'NOW', name: `${[...parent.name].slice(0, 120).join('')}-query` },
    }),
  );
  let removed: string | null = null;
  const remove = async (): Promise<void> => {
    removed = await client
      .DELETE('/projects/{project_id}/services/{service_id}', { params: { path: pathOf(fork) } })
      .then(() => null)
      .catch((error: unknown) => explain(error).message);
  };
  try {
    const { done, service: seen } = await settle(cloud, fork, 'READY', FORK_SECONDS, signal);
    const forkMs = Math.round(performance.now() - begunMs);
    if (!done)
      throw new Problem(
        `the fork ${fork.service_id} is ${seen?.status ?? 'gone'} after ${FORK_SECONDS} s`,
        'list_operations shows why; run the statement on the service itself',
      );
    const { summary, data } = await work(fork);
    await remove();
    const left =
      removed === null
        ? 'it is being deleted'
        : `it could not be deleted (${String(removed)}): delete_service`;
    return {
      summary: `${summary} On the fork ${fork.service_id}, which took ${forkMs} ms to make; \
${left}.`,
      data: {
        ...data,
        fork: {
          service_id: fork.service_id,
          fork_ms: forkMs,
          total_ms: Math.round(performance.now() - begunMs),
          left_because: removed,
        },
      },
    };
  } catch (error) {
    await remove();
    throw error;
  }
}
