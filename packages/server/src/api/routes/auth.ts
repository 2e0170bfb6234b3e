import { AnalyticsSchema, ApiError, AuthInfoSchema, FeedbackBody, Ref } from '@howdah/contract';
import { Type } from 'typebox';
import { createAllowance } from '../allowance.ts';
import type { App } from '../context.ts';
import type { Sessions } from '../console.ts';
import { sendNothing } from '../reply.ts';

/** Old clients refuse an address whose domain has no dot. */
const OWNER = {
  id: 'owner',
  name: 'Owner of this installation',
  email: 'owner@howdah.local',
} as const;

/** The control log is for everybody's events: a key cannot fill it. */
const FEEDBACK_PER_MINUTE = 10;
const MINUTE_MS = 60_000;

export function authRoutes(api: App, sessions: Sessions): void {
  api.get(
    '/auth/info',
    {
      schema: {
        operationId: 'getAuthInfo',
        summary: 'Describe the key in use',
        tags: ['auth'],
        response: { 200: Ref(AuthInfoSchema) },
      },
    },
    async ({ key }) => {
      const info = {
        public_key: key.key,
        name: key.name,
        role: key.role,
        fork_only: key.fork_only,
        dry_run_only: key.dry_run_only,
        created: key.created.toISOString(),
        project: { id: key.project_id, name: key.project_name, plan_type: 'self-hosted' },
        issuing_user: OWNER,
      };
      return { type: 'apiKey' as const, api_key: info, apiKey: info };
    },
  );

  api.post(
    '/auth/logout',
    {
      schema: {
        operationId: 'logout',
        summary: 'End the session',
        description:
          'Ends the session of the web console that the request carries. A key has no session.',
        tags: ['auth'],
        response: { 204: Type.Null({ description: 'done' }) },
      },
    },
    async (request, reply) => {
      await sessions.end(request, reply);
      return sendNothing(reply, 204);
    },
  );

  const allowance = createAllowance(FEEDBACK_PER_MINUTE, MINUTE_MS);
  api.post(
    '/feedback',
    {
      schema: {
        operationId: 'sendFeedback',
        summary: 'Send a message to the operator',
        description: 'It is a line of the control log, with the key that sent it.',
        tags: ['auth'],
        body: Ref(FeedbackBody),
        response: { 200: Ref(AnalyticsSchema) },
      },
    },
    async ({ key: { key, project_id: project }, body: { message, ...sender }, log }, reply) => {
      const waitMs = allowance.waitMs(key);
      if (waitMs > 0) {
        const seconds = Math.ceil(waitMs / 1000);
        void reply.header('Retry-After', seconds);
        throw new ApiError(
          'RATE_LIMITED',
          `feedback: this key has sent ${FEEDBACK_PER_MINUTE} messages within a minute, the most ` +
            `that are allowed; wait ${seconds} s`,
        );
      }
      allowance.spend(key);
      log.info({ feedback: message, sender, key, project }, 'feedback');
      return { status: 'success' as const };
    },
  );

  for (const call of ['identify', 'track'] as const) {
    api.post(
      `/analytics/${call}`,
      {
        schema: {
          operationId: `${call}Analytics`,
          summary: 'Accepted for old clients; nothing is stored',
          tags: ['auth'],
          response: { 200: Ref(AnalyticsSchema) },
        },
      },
      async () => ({ status: 'success' as const }),
    );
  }
}
