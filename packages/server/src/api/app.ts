/**
 * The HTTP server: Fastify with our errors, limits and routes. It calls services, never the inside
 * of an engine.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { randomUUID } from 'node:crypto';
import {
  createServer as createHttpServer,
  type RequestListener,
  type ServerOptions,
} from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { BlockList, isIPv6, type Server, type Socket } from 'node:net';
import { ApiError, BASE_PATH, NAMED_SCHEMAS, whyNotJson, permissionOf } from '@howdah/contract';
import { asError } from '@howdah/contract/thrown';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import Fastify, {
  LogController,
  type FastifyBaseLogger,
  type FastifyReply,
  type FastifyRequest,
  type RawServerDefault,
} from 'fastify';
import { AjvCompiler } from '@fastify/ajv-compiler';
import { SerializerSelector } from '@fastify/fast-json-stringify-compiler';
import { AnsweredBefore, DryRun } from '../services/change.ts';
import { auditCalls } from './audit-log.ts';
import { createGuard } from './auth.ts';
import { ignoreUnknownFields, reportIgnoredFields } from './body-fields.ts';
import {
  answerBrokenRequest,
  HEADER_BYTES,
  refuseTunnel,
  createErrorHandler,
  type ErrorHandler,
  errorBody,
  sourceOf,
} from './errors.ts';
import { answerAgain, answerDryRun, answerKept, nameCall } from './change-requests.ts';
import { compressLongAnswers } from './compression.ts';
import { consolePages, consoleSessions, createSessions, type Sessions } from './console.ts';
import type { ApiContext, App, HttpSettings } from './context.ts';
import { createHostCheck } from './hosts.ts';
import { createMetrics } from './metrics.ts';
import { refuseUnknownParameters } from './parameters.ts';
import { refuseUnknownRoutes } from './unknown-routes.ts';
import { alertRoutes } from './routes/alerts.ts';
import { allowListRoutes, vpcRoutes } from './routes/networks.ts';
import { auditLogRoutes, eventRoutes, operationRoutes } from './routes/history.ts';
import { authRoutes, loginRoutes, oauthRoutes } from './routes/auth.ts';
import { exporterRoutes, scrapeRoute } from './routes/exporters.ts';
import { installationRoutes, refusedRoutes, simulationRoutes } from './routes/installation.ts';
import { keyRoutes, memberRoutes, projectRoutes, usageRoutes } from './routes/projects.ts';
import { kubernetesRegionRoutes } from './routes/kubernetes-regions.ts';
import { repositoryRoutes } from './routes/repositories.ts';
import { leaseRoutes } from './routes/leases.ts';
import { replicaSetRoutes } from './routes/replica-sets.ts';
import { serviceRoutes } from './routes/services.ts';
import { webhookRoutes } from './routes/webhooks.ts';
import { createAllowance } from './allowance.ts';
import type { KeyRow } from '../store/keys.ts';

/**
 * Node's own defaults let a slow client hold a connection for five minutes (docs/reliability.md,
 * trap 9).
 */
const LIMITS = {
  bodyLimit: 64 * 1024,
  headersMs: 10_000,
  requestMs: 30_000,
  keepAliveMs: 65_000,
} as const;

/**
 * @param extend is called before the routes are declared: the OpenAPI generator has to see each of
 *   them
 */
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

  // Node answers an unknown header Expect by itself, without a body; RFC 9110, 10.1.1 lets us
  // ignore it.
  app.server.on('checkExpectation', (request, response) =>
    app.server.emit('request', request, response),
  );
  // Debian's Node.js has the HTTP parser of the system, which knows QUERY, and names no method
  // then.
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
  // The last one: others read the text of an answer.
  compressLongAnswers(api);
  authRoutes(api, sessions);
  consoleSessions(api, sessions);
  loginRoutes(api, context);
  projectRoutes(api, context);
  usageRoutes(api, context);
  keyRoutes(api, context);
  serviceRoutes(api, context);
  vpcRoutes(api, context);
  allowListRoutes(api, context);
  exporterRoutes(api, context);
  replicaSetRoutes(api, context);
  operationRoutes(api, context);
  eventRoutes(api, context);
  leaseRoutes(api, context);
  webhookRoutes(api, context);
  alertRoutes(api, context);
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
 * Node closes only the connections that are idle when a stop begins. It would wait for one that
 * becomes idle later as long as it is kept alive, and without end for one on which nothing was ever
 * sent.
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

/**
 * Bodies are JSON; clients also send a Content-Type of any kind with no body at all (`curl -d ''`).
 */
function acceptJson(app: App): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (_request, sent, done) => {
    const text = String(sent);
    if (text.trim() === '') return done(null, undefined);
    let body: unknown;
    try {
      body = JSON.parse(text);
    } catch (error) {
      return done(asError(error));
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
        `Content-Type: found ${request.headers['content-type']}; ` +
          'a body must be sent as application/json',
      ),
    );
  });
}

// How many changes a project may make: each one is a row in the audit log, an operation and events
// that are kept for long.

const DAY_MS = 86_400_000;

/**
 * Counts the accepted changes of each project. Refused ones, dry runs and reads do not count.
 *
 * @returns refuses a change of a project that has made too many
 */
function limitChanges(
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
      `changes: the project has made ${perDay} within a day, the most that are allowed; ` +
        `wait ${seconds} s, or have the operator raise HOWDAH_CHANGES_PER_DAY`,
    );
  };
}

// Validators and serializers that are made when a call first needs them. There are some hundreds,
// of which most installations need a few for days: to make all of them was half of a start of the
// control plane (bench/up.ts).

export function compileOnFirstUse(app: App): void {
  const named = Object.fromEntries(NAMED_SCHEMAS.map((schema) => [schema.$id, schema]));
  // Fastify's own choice silently turns 5 and null into strings, and drops unknown fields. The
  // schemas are our own and checked by our types, so the meta-schema is not needed.
  const customOptions = {
    coerceTypes: false,
    removeAdditional: false,
    verbose: true,
    validateSchema: false,
    // For generators of clients; without it Ajv refuses the schema of a query that has it.
    keywords: ['x-go-name', 'x-documented'],
  };
  const validatorOf = AjvCompiler()(named, { customOptions });
  const serializerOf = SerializerSelector()(named);

  app.setValidatorCompiler((definition) => {
    let made: ReturnType<typeof validatorOf> | undefined;
    return (data) => {
      made ??= validatorOf(definition);
      return made(data) === true || { error: made.errors ?? [] };
    };
  });
  app.setSerializerCompiler((definition) => {
    let made: ReturnType<typeof serializerOf> | undefined;
    return (document) => (made ??= serializerOf({ httpStatus: '', ...definition }))(document);
  });
}

// How many connections one address may hold: slow clients cannot take what others need.

/**
 * Refuses further connections of an address that has as many as it may. A trusted proxy's are many
 * people's and not counted.
 */
function limitConnections(
  server: Server,
  { connectionsPerAddress, trustedProxies, certificate }: HttpSettings,
): void {
  const open = new Map<string, number>();
  const proxies = addressList(trustedProxies);

  server.on('connection', (socket: Socket) => {
    const address = socket.remoteAddress ?? '';
    if (isListed(proxies, address)) return;
    const source = sourceOf(address);
    const count = (open.get(source) ?? 0) + 1;
    if (count > connectionsPerAddress) {
      refuse(socket, certificate === null, connectionsPerAddress);
      return;
    }
    open.set(source, count);
    socket.once('close', () => {
      const left = (open.get(source) ?? 1) - 1;
      if (left === 0) open.delete(source);
      else open.set(source, left);
    });
  });
}

/**
 * Requests that one connection may have sent without having read an answer: clients send one, some
 * a few.
 */
const MOST_PIPELINED = 16;

/**
 * Executor requests on, and ends a connection that sends without end and reads nothing: each
 * request takes memory until its answer has gone, and twelve such connections took 300 MB.
 */
function limitPipelining(handle: RequestListener): RequestListener {
  const underWay = new WeakMap<Socket, number>();
  return (request, response) => {
    const { socket } = request;
    const count = (underWay.get(socket) ?? 0) + 1;
    if (count > MOST_PIPELINED) {
      socket.destroy();
      return;
    }
    underWay.set(socket, count);
    response.once('close', () => underWay.set(socket, (underWay.get(socket) ?? 1) - 1));
    handle(request, response);
  };
}

/** Says why where it can be understood: without TLS. */
function refuse(socket: Socket, plain: boolean, most: number): void {
  socket.on('error', () => undefined);
  if (!plain) {
    socket.destroy();
    return;
  }
  const error = new ApiError(
    'RATE_LIMITED',
    `this address has ${most} connections open, the maximum; close some, or reuse them`,
  );
  const body = JSON.stringify(errorBody(error, randomUUID()));
  socket.end(
    'HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\n' +
      `Content-Length: ${Buffer.byteLength(body)}\r\n` +
      `Retry-After: 60\r\nConnection: close\r\n\r\n${body}`,
    // Whatever it still sends is not waited for.
    () => socket.destroy(),
  );
}

function addressList(entries: readonly string[]): BlockList {
  const list = new BlockList();
  for (const entry of entries) {
    const [address = '', bits] = entry.split('/');
    const family = isIPv6(address) ? 'ipv6' : 'ipv4';
    if (bits === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(bits), family);
  }
  return list;
}

function isListed(list: BlockList, address: string): boolean {
  // An IPv4 client of an IPv6 socket counts with its IPv4 address.
  const plain = address.replace(/^::ffff:(?=\d+\.)/i, '');
  return plain !== '' && list.check(plain, isIPv6(plain) ? 'ipv6' : 'ipv4');
}
