/** The HTTP server: Fastify with our errors, limits and routes. It calls services, never the inside of an engine. */
import { setTimeout as sleep } from 'node:timers/promises';
import { ApiError, BASE_PATH, NAMED_SCHEMAS, whyNotJson } from '@howdah/contract';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import Fastify, {
  LogController,
  type FastifyBaseLogger,
  type FastifyReply,
  type FastifyRequest,
  type RawServerDefault,
} from 'fastify';
import { randomUUID } from 'node:crypto';
import {
  createServer as createHttpServer,
  type RequestListener,
  type ServerOptions,
} from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { AnsweredBefore, DryRun } from '../services/change.ts';
import { auditCalls } from './audit-log.ts';
import { createGuard } from './auth.ts';
import { ignoreUnknownFields, reportIgnoredFields } from './body-fields.ts';
import { answerBrokenRequest, HEADER_BYTES, refuseTunnel } from './broken-requests.ts';
import { answerAgain, answerDryRun, answerKept, nameCall } from './changes.ts';
import { limitChanges } from './change-limit.ts';
import { compileOnFirstUse } from './compilers.ts';
import { limitConnections, limitPipelining } from './connections.ts';
import { consolePages, consoleSessions, createSessions, type Sessions } from './console.ts';
import type { ApiContext, App, HttpSettings } from './context.ts';
import { createHostCheck } from './hosts.ts';
import { createErrorHandler, type ErrorHandler } from './errors.ts';
import { createMetrics } from './metrics.ts';
import { refuseUnknownParameters } from './parameters.ts';
import { refuseUnknownRoutes } from './unknown-routes.ts';
import { allowListRoutes } from './routes/allow-lists.ts';
import { auditLogRoutes } from './routes/audit-log.ts';
import { authRoutes } from './routes/auth.ts';
import { eventRoutes } from './routes/events.ts';
import { exporterRoutes } from './routes/exporters.ts';
import { installationRoutes } from './routes/installation.ts';
import { keyRoutes } from './routes/keys.ts';
import { loginRoutes, oauthRoutes } from './routes/logins.ts';
import { memberRoutes } from './routes/members.ts';
import { operationRoutes } from './routes/operations.ts';
import { projectRoutes } from './routes/projects.ts';
import { refusedRoutes } from './routes/refused.ts';
import { kubernetesRegionRoutes } from './routes/kubernetes-regions.ts';
import { repositoryRoutes } from './routes/repositories.ts';
import { replicaSetRoutes } from './routes/replica-sets.ts';
import { scrapeRoute } from './routes/scrape.ts';
import { serviceRoutes } from './routes/services.ts';
import { simulationRoutes } from './routes/simulation.ts';
import { vpcRoutes } from './routes/vpcs.ts';
import { webhookRoutes } from './routes/webhooks.ts';

/** Node's own defaults let a slow client hold a connection for five minutes (docs/reliability.md, trap 9). */
const LIMITS = {
  bodyLimit: 64 * 1024,
  headersMs: 10_000,
  requestMs: 30_000,
  keepAliveMs: 65_000,
} as const;

/** @param extend is called before the routes are declared: the OpenAPI generator has to see each of them */
export async function createApp(
  context: ApiContext,
  log: FastifyBaseLogger,
  extend?: (app: App) => Promise<void>,
): Promise<App> {
  const answerError = createErrorHandler();
  const app: App = Fastify({
    loggerInstance: log,
    // Lines for each request would fill the control log; errors are logged where they are answered.
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: LIMITS.bodyLimit,
    routerOptions: { maxParamLength: 512 },
    trustProxy: context.http.trustedProxies.length === 0 ? false : [...context.http.trustedProxies],
    serverFactory: (handler) => createServer(limitPipelining(handler), context.http),
    genReqId: () => randomUUID(),
    return503OnClosing: false,
    forceCloseConnections: 'idle',
    frameworkErrors: (error, request, reply) => void answerError(error, request, reply),
    clientErrorHandler: answerBrokenRequest,
  }).withTypeProvider<TypeBoxTypeProvider>();

  // Node answers an unknown header Expect by itself, without a body; RFC 9110, 10.1.1 lets us ignore it.
  app.server.on('checkExpectation', (request, response) =>
    app.server.emit('request', request, response),
  );
  // Debian's Node.js has the HTTP parser of the system, which knows QUERY, and names no method then.
  app.server.prependListener('request', (request) => (request.method ??= 'QUERY'));
  app.server.on('connect', (_request, socket) => refuseTunnel(socket));
  app.setErrorHandler((error, request, reply) => {
    if (error instanceof DryRun) return answerDryRun(reply, error, context.regions);
    if (error instanceof AnsweredBefore) return againOrRefuse(error, request, reply, answerError);
    return answerError(error, request, reply);
  });
  acceptJson(app);
  refuseUnknownRoutes(app);
  endConnections(app);
  limitConnections(app.server, context.http);
  app.addHook('onRequest', createHostCheck(context.http.names));
  app.addHook('onSend', (request, reply, _payload, done) => {
    void reply.header('X-Request-Id', request.id).header('X-Content-Type-Options', 'nosniff');
    // Answers hold secrets, such as first passwords: browsers and proxies must not keep them.
    if (isPrivate(request) && !reply.hasHeader('Cache-Control'))
      void reply.header('Cache-Control', 'no-store');
    done();
  });
  for (const schema of NAMED_SCHEMAS) app.addSchema(schema);
  compileOnFirstUse(app);
  await extend?.(app);

  const metrics = createMetrics(app, context);
  installationRoutes(app, context, metrics);
  scrapeRoute(app, context);
  const sessions = createSessions(context.store);
  consolePages(app);
  // The token endpoint takes forms, which no other route does.
  await app.register(async (oauth: App) => oauthRoutes(oauth, context));
  await app.register(async (api: App) => apiRoutes(api, context, sessions, log), {
    prefix: BASE_PATH,
  });
  return app;
}

/** The routes of the API, and the guard before them. */
function apiRoutes(
  api: App,
  context: ApiContext,
  sessions: Sessions,
  log: FastifyBaseLogger,
): void {
  api.decorateRequest('key');
  api.decorateRequest('service');
  api.decorateRequest('vpc');
  api.decorateRequest('peering');
  api.decorateRequest('change');
  api.decorateRequest('ignored');
  auditCalls(api, context.store, log);
  const refuseChange = limitChanges(api, context.http.changesPerDay);
  api.addHook(
    'onRequest',
    createGuard(context.store, context.http.failedKeysPerMinute, sessions.find, refuseChange),
  );
  api.addHook('preValidation', refuseUnknownParameters);
  api.addHook('preValidation', nameCall);
  api.addHook('preValidation', ignoreUnknownFields);
  api.addHook('preValidation', answerAgain);
  api.addHook('onSend', reportIgnoredFields);
  authRoutes(api, sessions);
  consoleSessions(api, sessions);
  loginRoutes(api, context);
  projectRoutes(api, context);
  keyRoutes(api, context);
  serviceRoutes(api, context);
  vpcRoutes(api, context);
  allowListRoutes(api, context);
  exporterRoutes(api, context);
  replicaSetRoutes(api, context);
  operationRoutes(api, context);
  eventRoutes(api, context);
  webhookRoutes(api, context);
  repositoryRoutes(api, context);
  kubernetesRegionRoutes(api, context);
  auditLogRoutes(api, context);
  memberRoutes(api, context);
  simulationRoutes(api, context);
  refusedRoutes(api);
}

/** Whether an answer is for the caller alone. */
function isPrivate({ url, routeOptions }: FastifyRequest): boolean {
  return url.startsWith(BASE_PATH) && routeOptions.config?.public !== true;
}

/** With TLS if there is a certificate. */
function createServer(handler: RequestListener, { certificate }: HttpSettings): RawServerDefault {
  const options: ServerOptions = {
    maxHeaderSize: HEADER_BYTES,
    headersTimeout: LIMITS.headersMs,
    requestTimeout: LIMITS.requestMs,
    keepAliveTimeout: LIMITS.keepAliveMs,
    connectionsCheckingInterval: 2000,
    // Node would refuse a request without Host with an empty answer; no route needs the header.
    requireHostHeader: false,
  };
  if (certificate === null) return createHttpServer(options, handler);
  const { certificatePem: cert, keyPem: key } = certificate;
  return createHttpsServer(
    { ...options, cert, key, minVersion: 'TLSv1.2', handshakeTimeout: LIMITS.headersMs },
    handler,
  );
}

/** Answers the later of two calls with the same Idempotency-Key at the same time. */
function againOrRefuse(
  { answer }: AnsweredBefore,
  request: FastifyRequest,
  reply: FastifyReply,
  answerError: ErrorHandler,
): FastifyReply {
  try {
    return answerKept(reply, answer);
  } catch (error) {
    return answerError(error, request, reply);
  }
}

/** How long requests may go on when the control plane stops: containers are killed after 10 s. */
const STOP_GRACE_MS = 5000;
const IDLE_POLL_MS = 50;

/**
 * Node closes only the connections that are idle when a stop begins. It would wait for one that becomes
 * idle later as long as it is kept alive, and without end for one on which nothing was ever sent.
 */
function endConnections(app: App): void {
  app.addHook('preClose', async () => {
    // Fastify does not close a server that never listened.
    if (!app.server.listening) return void app.server.close();
    void endUntilClosed(app.server);
  });
}

async function endUntilClosed(server: App['server']): Promise<void> {
  let isClosed = false;
  server.once('close', () => (isClosed = true));
  for (const endMs = performance.now() + STOP_GRACE_MS; !isClosed; await sleep(IDLE_POLL_MS)) {
    if (performance.now() < endMs) server.closeIdleConnections();
    else server.closeAllConnections();
  }
}

/** Bodies are JSON; clients also send a Content-Type of any kind with no body at all (`curl -d ''`). */
function acceptJson(app: App): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (_request, sent, done) => {
    const text = String(sent);
    if (text.trim() === '') return done(null, undefined);
    let body: unknown;
    try {
      body = JSON.parse(text);
    } catch (error) {
      return done(error instanceof Error ? error : new Error(String(error)));
    }
    const why = whyNotJson(body);
    return why === null
      ? done(null, body)
      : done(new ApiError('INVALID_REQUEST', `the body: ${why}`));
  });
  app.addContentTypeParser('*', { parseAs: 'string' }, (request, body, done) => {
    if (String(body) === '') return done(null, undefined);
    return done(
      new ApiError(
        'UNSUPPORTED_MEDIA_TYPE',
        `Content-Type: found ${request.headers['content-type']}; a body must be sent as application/json`,
      ),
    );
  });
}
