/**
 * The web console: its files, and the sessions of its browsers.
 *
 * A session is a cookie that scripts cannot read and that other sites cannot send. It stands for a
 * key, found again at every request, and ends with it. It begins with a key, or with a one-time
 * link, whose token stands behind the # of the address: no server, proxy or log sees it.
 */
import { randomBytes } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { extname, join } from 'node:path';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import {
  ApiError,
  BASE_PATH,
  CONSOLE_HEADER,
  ConsoleLinkSchema,
  OpenLinkBody,
  Ref,
} from '@howdah/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { CONSOLE_DIRECTORY } from '../paths.ts';
import { insertToken, sessionReader, takeToken, type ConsoleToken } from '../store/console.ts';
import { sha256 } from '../lib/secret.ts';
import type { Store } from '../store/database.ts';
import { isKeyValid, type KeyRow } from '../store/keys.ts';
import { createAllowance } from './allowance.ts';
import type { App } from './context.ts';
import { sendNothing } from './reply.ts';

/** How long a link can be used, once, and how long a session lasts. */
const LINK_MS = 60 * 60_000;
const SESSION_MS = 7 * 24 * 60 * 60_000;
/** Links and sessions that a key can make; each is a write. store/console.ts keeps the newest. */
const TOKENS_PER_MINUTE = 60;
const MINUTE_MS = 60_000;
const READ_METHODS: readonly string[] = ['GET', 'HEAD'];

/** A session: its token, which nobody else knows, and the key that it stands for. */
export type Session = { token: string; key: KeyRow };

/** The path that opens the console with a one-time link's token. */
export const linkPath = (token: string): string => `/login#${token}`;

/** A new token of a key, kept as its hash only. */
export async function issueToken(store: Store, kind: ConsoleToken['kind'], publicKey: string) {
  const token = randomBytes(32).toString('base64url');
  const lifetimeMs = kind === 'link' ? LINK_MS : SESSION_MS;
  await insertToken(store.db, { hash: hashOf(token), kind, publicKey, lifetimeMs });
  return { token, expires: new Date(Date.now() + lifetimeMs) };
}

export function createSessions(store: Store) {
  const readSession = sessionReader(store.pool);
  const allowance = createAllowance(TOKENS_PER_MINUTE, MINUTE_MS);

  /** A new token of a key. @throws ApiError RATE_LIMITED */
  const issue = async (reply: FastifyReply, kind: ConsoleToken['kind'], publicKey: string) => {
    const waitMs = allowance.waitMs(publicKey);
    if (waitMs > 0) {
      void reply.header('Retry-After', Math.ceil(waitMs / 1000));
      throw new ApiError(
        'RATE_LIMITED',
        `links, sessions: this key has made ${TOKENS_PER_MINUTE} within a minute, the most that ` +
          `are allowed; wait ${Math.ceil(waitMs / 1000)} s, and use those that it has`,
      );
    }
    allowance.spend(publicKey);
    return issueToken(store, kind, publicKey);
  };

  const begin = async (
    request: FastifyRequest,
    reply: FastifyReply,
    publicKey: string,
  ): Promise<void> => {
    const { token } = await issue(reply, 'session', publicKey);
    void reply.header('Set-Cookie', cookie(request, token, SESSION_MS / 1000));
  };

  return {
    begin,
    /** Begins the session that a one-time link is for. */
    open: async (
      request: FastifyRequest,
      reply: FastifyReply,
      linkToken: string,
    ): Promise<void> => {
      const publicKey = await takeToken(store.db, 'link', hashOf(linkToken));
      if (publicKey === null) {
        throw new ApiError(
          'UNAUTHORIZED',
          'token: this link was used already, or its hour is over; ' +
            'howdah console prints a new one, and a key opens the console too',
        );
      }
      if (!(await isKeyValid(store.db, publicKey)))
        throw new ApiError(
          'UNAUTHORIZED',
          'token: the key that made this link was revoked or has expired; ' +
            'make a link with a valid key (howdah console), or open the console with a key',
        );
      await begin(request, reply, publicKey);
    },
    end: async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
      const token = tokenOf(request);
      if (token === null) return;
      await takeToken(store.db, 'session', hashOf(token));
      void reply.header('Set-Cookie', cookie(request, '', 0));
    },
    link: (reply: FastifyReply, publicKey: string) => issue(reply, 'link', publicKey),
    /** The session of a request; null: it carries none. */
    find: async (request: FastifyRequest): Promise<Session | null> => {
      const token = tokenOf(request);
      if (token === null) return null;
      if (!READ_METHODS.includes(request.method) && request.headers[CONSOLE_HEADER] === undefined)
        throw new ApiError(
          'FORBIDDEN',
          `${CONSOLE_HEADER}: missing; a session of the web console changes things from ` +
            'there only, everybody else sends a key in Authorization',
        );
      const row = await readSession(hashOf(token));
      if (row === null || !row.valid)
        throw new ApiError(
          'UNAUTHORIZED',
          'this session of the console has ended, or its key has: log in again',
        );
      return { token, key: { ...row, key: row.public_key } };
    },
  };
}
export type Sessions = ReturnType<typeof createSessions>;

const hashOf = (token: string): string => sha256(token).toString('hex');

/**
 * Cookies know no ports: by its name, that of one installation is not taken for that of another on
 * the same host.
 */
function cookieName({ headers }: FastifyRequest): string {
  return `howdah_${/:([0-9]{1,5})$/.exec(headers.host ?? '')?.[1] ?? 'session'}`;
}

function tokenOf(request: FastifyRequest): string | null {
  const start = `${cookieName(request)}=`;
  const found = request.headers.cookie?.split('; ').find((pair) => pair.startsWith(start));
  return found === undefined ? null : found.slice(start.length);
}

function cookie(request: FastifyRequest, token: string, maxAgeSeconds: number): string {
  // Behind a proxy that ends TLS the browser says so in Origin, and the cookie never goes over
  // plain HTTP again.
  const secure = request.headers.origin?.startsWith('https:') === true ? '; Secure' : '';
  return (
    `${cookieName(request)}=${token}; Path=/; Max-Age=${maxAgeSeconds}; HttpOnly; ` +
    `SameSite=Strict${secure}`
  );
}

/** The calls by which sessions begin; `POST /auth/logout` ends one. */
export function consoleSessions(api: App, sessions: Sessions): void {
  api.post(
    '/auth/sessions',
    {
      schema: {
        operationId: 'beginSession',
        summary: 'Begin a session of the web console with a key',
        description: 'The cookie of the answer authenticates as the key, for seven days.',
        tags: ['auth'],
        response: { 204: Type.Null({ description: 'the session has begun' }) },
      },
    },
    async (request, reply) => {
      await sessions.begin(request, reply, request.key.key);
      return sendNothing(reply, 204);
    },
  );

  api.post(
    '/auth/sessions/open',
    {
      config: { public: true },
      schema: {
        operationId: 'openLink',
        summary: 'Begin a session of the web console with a one-time link',
        tags: ['auth'],
        security: [],
        body: Ref(OpenLinkBody),
        response: {
          204: Type.Null({ description: 'the session has begun, and the link is used up' }),
        },
      },
    },
    async (request, reply) => {
      await sessions.open(request, reply, request.body.token);
      return sendNothing(reply, 204);
    },
  );

  api.post(
    '/auth/links',
    {
      schema: {
        operationId: 'createLink',
        summary: 'Make a one-time link that opens the web console',
        description: 'It opens a session of the key that asks. It can be used once within an hour.',
        tags: ['auth'],
        response: { 201: Ref(ConsoleLinkSchema) },
      },
    },
    async (request, reply) => {
      const { token, expires } = await sessions.link(reply, request.key.key);
      return reply.code(201).send({ path: linkPath(token), expires: expires.toISOString() });
    },
  );
}

// ── files
// ─────────────────────────────────────────────────────────────────────────────────────────────────

/** Where the console has pages: each is the same document, which shows what its address says. */
const PAGES = [
  '/',
  '/login',
  '/device',
  '/oauth/authorize',
  '/oauth/code/success',
  '/create',
  '/services',
  '/services/*',
  '/project',
  '/project/*',
] as const;

/**
 * Pages of Tiger Cloud's console that its command line prints, and the page here. It opens those of
 * the login too, which have the same addresses here.
 */
const PAGES_OF_TIGER: readonly (readonly [path: string, here: string])[] = [
  ['/dashboard', '/services'],
  ['/dashboard/*', '/services'],
  ['/dashboard/services/:service_id', '/services/'],
  ['/dashboard/settings', '/project/keys'],
];

const TYPES: Record<string, string> = {
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** Stands for the nonce in `index.html`. */
const NONCE = '%NONCE%';

/** Nothing but our own files, and no style that our own document did not let in. */
const policy = (nonce: string): string =>
  [
    "default-src 'none'",
    "script-src 'self'",
    `style-src 'self' 'nonce-${nonce}'`,
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ');

/**
 * Sends the console's document. Its scripts show the page of the address, or that there is none.
 */
export async function sendPage(
  reply: FastifyReply,
  status: 200 | 404 = 200,
): Promise<FastifyReply> {
  const nonce = randomBytes(16).toString('base64');
  const document = await readFile(join(CONSOLE_DIRECTORY, 'index.html'), 'utf8');
  return reply
    .code(status)
    .headers({
      'Content-Security-Policy': policy(nonce),
      'Cache-Control': 'no-cache',
      'Referrer-Policy': 'no-referrer',
    })
    .type('text/html; charset=utf-8')
    .send(document.replaceAll(NONCE, nonce));
}

/** Whether a request is a browser's visit to a page. The paths of the API always answer in JSON. */
export function isVisit({ method, url, headers }: FastifyRequest): boolean {
  return (
    (method === 'GET' || method === 'HEAD') &&
    headers.accept?.includes('text/html') === true &&
    !`${url.split('?')[0]}/`.startsWith(`${BASE_PATH}/`)
  );
}

export function consolePages(app: App): void {
  const open = { config: { public: true }, schema: { hide: true } } as const;
  const assets = createAssets();

  for (const page of PAGES) app.get(page, open, (_request, reply) => sendPage(reply));
  for (const [path, here] of PAGES_OF_TIGER)
    app.get<{ Params: { service_id?: string } }>(path, open, (request, reply) =>
      reply.redirect(`${here}${encodeURIComponent(request.params.service_id ?? '')}`),
    );

  app.get(
    '/assets/:name',
    { ...open, schema: { ...open.schema, params: Type.Object({ name: Type.String() }) } },
    async (request, reply) => {
      const { name } = request.params;
      const asset = await assets(name);
      if (asset === null)
        throw new ApiError(
          'NOT_FOUND',
          `no such file: ${JSON.stringify(name.slice(0, 64))}; reload the console`,
        );
      void reply.headers({
        // The name of the file changes with what is in it.
        'Cache-Control': 'public, max-age=31536000, immutable',
        Vary: 'Accept-Encoding',
      });
      const packed = /\bgzip\b/.test(request.headers['accept-encoding'] ?? '');
      if (packed) void reply.header('Content-Encoding', 'gzip');
      return reply
        .type(TYPES[extname(name)] ?? 'application/octet-stream')
        .send(packed ? asset.packed : asset.plain);
    },
  );
}

/**
 * The files of the console by name: read, packed and kept when they are first asked for. Only what
 * is listed is ever opened.
 */
function createAssets() {
  const directory = join(CONSOLE_DIRECTORY, 'assets');
  const kept = new Map<string, Promise<{ plain: Buffer; packed: Buffer }>>();

  const load = async (name: string) => {
    const plain = await readFile(join(directory, name));
    return { plain, packed: await promisify(gzip)(plain) };
  };

  return async (name: string): Promise<{ plain: Buffer; packed: Buffer } | null> => {
    const found = kept.get(name);
    if (found !== undefined) return found;
    if (!(await readdir(directory)).includes(name)) return null;
    const asset = load(name);
    kept.set(name, asset);
    return asset;
  };
}
