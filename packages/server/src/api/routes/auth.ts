import {
  AnalyticsSchema,
  ApiError,
  AuthInfoSchema,
  FeedbackBody,
  Ref,
  ApproveLoginBody,
  CollectLoginBody,
  DeviceLoginSchema,
  LoginKeySchema,
  LoginRequestSchema,
  MessageBody,
  StartLoginBody,
  UserCodeBody,
  type LoginKey,
} from '@howdah/contract';
import { Type } from 'typebox';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { createAllowance } from '../allowance.ts';
import type { App, ApiContext } from '../context.ts';
import type { Sessions } from '../console.ts';
import { sendNothing } from '../reply.ts';
import {
  approveLogin,
  collectLogin,
  denyLogin,
  findLogin,
  startLogin,
  type CollectCall,
  type Refusal,
} from '../../services/logins.ts';
import { answer, callerOf } from '../change-requests.ts';
import { createFailures, sourceOf } from '../errors.ts';
import { originOf } from '../hosts.ts';
import { boundsDocument } from '../../store/keys.ts';

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
        ...boundsDocument(key),
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

// Logins of programs, which a person approves in the web console.

/** The page of the console that asks for a code. */
const DEVICE_PAGE = '/device';
/** Wrong codes of people: nobody finds a code by trying. */
const WRONG_CODES_PER_MINUTE = 10;

const REASONS: Record<Refusal, string> = {
  authorization_pending: 'nobody has approved the login yet; ask again in 5 s',
  access_denied: 'the login was denied, or the key of the person who approved it has ended',
  expired_token:
    'no login has this code: it was used, its ten minutes are over, or it is another code; ' +
    'begin the login again',
};
const CODES = {
  authorization_pending: 'INVALID_STATE',
  access_denied: 'FORBIDDEN',
  expired_token: 'UNAUTHORIZED',
} as const satisfies Record<Refusal, string>;

export function loginRoutes(api: App, context: ApiContext): void {
  const { failedKeysPerMinute } = context.http;
  const starts = createAllowance(failedKeysPerMinute + 1, MINUTE_MS);
  const refuseMany = (request: FastifyRequest, reply: FastifyReply): void => {
    const from = sourceOf(request.ip);
    const waitMs = starts.waitMs(from);
    if (waitMs > 0)
      throw tooMany(reply, waitMs, `logins: ${request.ip} has begun too many within a minute`);
    starts.spend(from);
  };
  api.post(
    '/auth/device',
    {
      config: { public: true },
      schema: {
        operationId: 'startDeviceLogin',
        summary: 'Begin a login that a person approves in the web console',
        description:
          'For a program that has no key: it shows the code to a person, who types it into the ' +
          'page of the answer. As in RFC 8628, with JSON. Both codes end after ten minutes.',
        tags: ['auth'],
        security: [],
        body: Ref(StartLoginBody),
        response: { 200: Ref(DeviceLoginSchema) },
      },
    },
    async (request, reply) => {
      refuseMany(request, reply);
      void reply.header('Cache-Control', 'no-store');
      const started = await startLogin(context.store, request.body, request.ip);
      const page = `${originOf(request)}${DEVICE_PAGE}`;
      return {
        ...started,
        verification_uri: page,
        // A browser sends the part after the # to no server or proxy.
        verification_uri_complete: `${page}#${started.user_code}`,
      };
    },
  );
  collectRoute(api, context);
  answerRoutes(api, context);
}

function tooMany(reply: FastifyReply, waitMs: number, found: string): ApiError {
  const seconds = Math.ceil(waitMs / 1000);
  void reply.header('Retry-After', seconds);
  return new ApiError('RATE_LIMITED', `${found}, more than are allowed; wait ${seconds} s`);
}

function collectRoute(api: App, context: ApiContext): void {
  const { failedKeysPerMinute } = context.http;
  const failures = createFailures(failedKeysPerMinute);
  api.post(
    '/auth/device/token',
    {
      config: { public: true },
      schema: {
        operationId: 'collectDeviceLogin',
        summary: 'Collect the key of an approved login, once',
        description:
          'While nobody has answered: 400 with `details.error` authorization_pending. Then the ' +
          'key, which is made now and shown only here; or 403 access_denied. A code that was ' +
          'used, has ended or is wrong: 401 expired_token.',
        tags: ['auth'],
        security: [],
        body: Ref(CollectLoginBody),
        response: { 200: Ref(LoginKeySchema) },
      },
    },
    async (request, reply) => {
      void reply.header('Cache-Control', 'no-store');
      const collected = await collectLogin(context, request.body, callOf(request));
      if (typeof collected !== 'string') return collected;
      if (collected === 'expired_token' && !failures.note(request.ip))
        throw new ApiError(
          'RATE_LIMITED',
          `device_code: ${wrongCodes(failedKeysPerMinute, request)}, and begin the login again`,
        );
      throw new ApiError(CODES[collected], `device_code: ${REASONS[collected]}`, {
        error: collected,
      });
    },
  );
}

const wrongCodes = (most: number, { ip }: FastifyRequest): string =>
  `more than ${most} codes from ${ip} were wrong within a minute; wait a minute`;

const callOf = ({ ip, method, url, id }: FastifyRequest): CollectCall => ({
  address: ip,
  method,
  path: (url.split('?')[0] ?? '').slice(0, 256),
  request_id: id,
});

/** The calls of the person who answers. */
function answerRoutes(api: App, context: ApiContext): void {
  const allowance = createAllowance(WRONG_CODES_PER_MINUTE, MINUTE_MS);
  /** Runs a call that names a code; wrong codes count for the key. */
  const countingWrong = async <T>(
    request: FastifyRequest,
    reply: FastifyReply,
    call: () => Promise<T>,
  ): Promise<T> => {
    const { key } = request.key;
    const waitMs = allowance.waitMs(key);
    if (waitMs > 0) throw tooMany(reply, waitMs, 'user_code: this key has sent ten wrong codes');
    try {
      return await call();
    } catch (error) {
      if (error instanceof ApiError && error.code === 'NOT_FOUND') allowance.spend(key);
      throw error;
    }
  };

  api.post(
    '/auth/device/find',
    {
      schema: {
        operationId: 'findDeviceLogin',
        summary: 'Describe a login that waits for an answer',
        tags: ['auth'],
        body: Ref(UserCodeBody),
        response: { 200: Ref(LoginRequestSchema) },
      },
    },
    async (request, reply) =>
      countingWrong(request, reply, () => findLogin(context.store.db, request.body.user_code)),
  );

  api.post(
    '/auth/device/approve',
    {
      schema: {
        operationId: 'approveDeviceLogin',
        summary: 'Approve a login: its program gets a key of this project',
        description:
          'The key is named like the program and made when that collects it, within ten minutes; ' +
          'not if the key that approves has ended by then. Needs an admin key.',
        tags: ['auth'],
        body: Ref(ApproveLoginBody),
        response: { 200: Ref(MessageBody) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await countingWrong(request, reply, () =>
          approveLogin(context, callerOf(request), request.body),
        ),
      ),
  );

  api.post(
    '/auth/device/deny',
    {
      schema: {
        operationId: 'denyDeviceLogin',
        summary: 'Deny a login: its program gets no key',
        tags: ['auth'],
        body: Ref(UserCodeBody),
        response: { 200: Ref(MessageBody) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await countingWrong(request, reply, () =>
          denyLogin(context, callerOf(request), request.body),
        ),
      ),
  );
}

// ── OAuth 2.0, as Tiger Cloud's command line speaks it ───────────────────────────────────────────

/** Below the `gateway_url` of Tiger Cloud's command line, which is `…/api` here as there. */
const TOKEN_PATH = '/api/idp/external/cli/token';
const FORM = 'application/x-www-form-urlencoded';

/**
 * The token endpoint of an OAuth 2.0 login with PKCE: a browser went to /oauth/authorize, where a
 * person approved the login, and back to the program with its code. The token is a key.
 */
export function oauthRoutes(app: App, context: ApiContext): void {
  const { failedKeysPerMinute } = context.http;
  const failures = createFailures(failedKeysPerMinute);
  app.addContentTypeParser(FORM, { parseAs: 'string' }, (_request, sent, done) =>
    done(null, Object.fromEntries(new URLSearchParams(String(sent)))),
  );
  app.post(
    TOKEN_PATH,
    { config: { public: true }, schema: { hide: true } },
    async (request, reply) => {
      void reply.header('Cache-Control', 'no-store');
      const refuse = (error: string, why: string) => {
        if (failures.note(request.ip))
          return reply.code(400).send({ error, error_description: why });
        return reply
          .code(429)
          .header('Retry-After', 60)
          .send({
            error: 'slow_down',
            error_description: wrongCodes(failedKeysPerMinute, request),
          });
      };
      const form = fieldsOf(request.body);
      if (form.get('grant_type') !== 'authorization_code')
        return refuse(
          'unsupported_grant_type',
          `grant_type: found ${form.get('grant_type') ?? 'none'}; allowed: authorization_code. ` +
            'A key that has expired is not renewed: log in again',
        );
      const [code, verifier] = [form.get('code'), form.get('code_verifier')];
      const redirectUri = form.get('redirect_uri');
      if (code === undefined || verifier === undefined || redirectUri === undefined)
        return refuse('invalid_request', 'code, code_verifier and redirect_uri: each is needed');
      const body = { device_code: code, code_verifier: verifier };
      const collected = await collectLogin(context, body, callOf(request), redirectUri);
      if (typeof collected === 'string') return refuse('invalid_grant', REASONS[collected]);
      return reply.send(tokenOf(collected));
    },
  );
}

function tokenOf({ access_token, token_type, expires_at: expires }: LoginKey): object {
  const seconds = expires === null ? null : Math.floor((Date.parse(expires) - Date.now()) / 1000);
  return { access_token, token_type, ...(seconds === null ? {} : { expires_in: seconds }) };
}

function fieldsOf(body: unknown): Map<string, string> {
  const entries: [string, unknown][] =
    typeof body === 'object' && body !== null ? Object.entries(body) : [];
  return new Map(
    entries.flatMap(([name, value]) => (typeof value === 'string' ? [[name, value]] : [])),
  );
}
