/** How many changes a project may make: each one is a row in the audit log, an operation and events that are kept for long. */
import { ApiError, permissionOf } from '@howdah/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { createAllowance } from './allowance.ts';
import type { App } from './context.ts';
import type { KeyRow } from '../store/keys.ts';

const DAY_MS = 86_400_000;

/**
 * Counts the accepted changes of each project. Refused ones, dry runs and reads do not count.
 *
 * @returns refuses a change of a project that has made too many
 */
export function limitChanges(
  api: App,
  perDay: number,
): (request: FastifyRequest, reply: FastifyReply) => void {
  const allowance = createAllowance(perDay, DAY_MS);
  const isCounted = ({ routeOptions: { schema }, change }: FastifyRequest): boolean =>
    permissionOf(schema?.operationId)?.changes === true && change?.dryRun === false;

  api.addHook('onSend', (request, reply, _payload, done) => {
    const key: KeyRow | undefined = request.key;
    if (key !== undefined && reply.statusCode < 400 && isCounted(request))
      allowance.spend(key.project_id);
    done();
  });
  return (request, reply) => {
    const waitMs = isCounted(request) ? allowance.waitMs(request.key.project_id) : 0;
    if (waitMs === 0) return;
    const seconds = Math.ceil(waitMs / 1000);
    void reply.header('Retry-After', seconds);
    throw new ApiError(
      'RATE_LIMITED',
      `changes: the project has made ${perDay} within a day, the most that are allowed; wait ${seconds} s, or have the operator raise HOWDAH_CHANGES_PER_DAY`,
    );
  };
}
