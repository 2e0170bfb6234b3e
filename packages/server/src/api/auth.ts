/** Who asks, and whether they may: key, then project, then resource. Bodies are not even read before that. */
import { createHash, timingSafeEqual } from 'node:crypto';
import { ApiError, isId, type Role } from '@howdah/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { serviceNotFound } from '../services/services.ts';
import type { Store } from '../store/database.ts';
import { keyReader, touchKey, type KeyRow } from '../store/keys.ts';
import { docReader, type ServiceDoc } from '../store/services.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** The key of the caller; set on every route of the API but the public ones. */
    key: KeyRow;
    /** The service that the path names, of the caller's project. */
    service: ServiceDoc;
  }
  interface FastifyContextConfig {
    /** Answered without a key. */
    public?: boolean;
    /** Reaches services that are deleted and can be restored. */
    deletedToo?: boolean;
    /** A POST that changes nothing: viewers may. */
    readOnlyPost?: boolean;
    /** Refused to keys that are not admin while the service is PROD. */
    prodNeedsAdmin?: boolean;
  }
}

/** How precise `last_used` is. */
const TOUCH_EVERY_MS = 60_000;
const READ_METHODS: readonly string[] = ['GET', 'HEAD'];

export function createGuard(store: Store) {
  const readKey = keyReader(store.pool);
  const readDoc = docReader(store.pool);

  const authenticate = async (header: string | undefined): Promise<KeyRow> => {
    const presented = parseAuthorization(header);
    if (presented === null) {
      throw new ApiError(
        'UNAUTHORIZED',
        `Authorization: ${header === undefined ? 'missing' : 'not understood'}; send "Bearer <public_key>:<secret_key>", or Basic with the two halves`,
      );
    }
    const row = await readKey(presented.publicKey);
    // A key that does not exist is compared too, so that an answer's time does not tell which keys there are.
    const matches = timingSafeEqual(sha256(presented.secretKey), row?.secret_hash ?? NO_HASH);
    if (row === null || !matches || !row.valid)
      throw new ApiError('UNAUTHORIZED', 'Authorization: no valid key: unknown, revoked, expired or a wrong secret');
    if (row.last_used === null || Date.now() - row.last_used.getTime() > TOUCH_EVERY_MS) await touchKey(store.db, row.key);
    return row;
  };

  /** Runs before anything else of a request. */
  return async (request: FastifyRequest, _reply: FastifyReply): Promise<void> => {
    const { config } = request.routeOptions;
    if (config.public === true) return;
    request.key = await authenticate(request.headers.authorization);
    const { project_id: projectId, service_id: serviceId } = parametersOf(request.params);
    if (projectId !== undefined && projectId !== request.key.project_id) {
      throw new ApiError('FORBIDDEN', 'this key does not reach that project; GET /projects lists those it does');
    }
    if (!READ_METHODS.includes(request.method) && config.readOnlyPost !== true)
      assertRole(request.key.role, ['admin', 'developer'], 'change anything');
    if (serviceId === undefined) return;
    // What is no id is nobody's, and the store cannot even be asked for a NUL.
    const service = isId(serviceId) ? await readDoc(serviceId) : null;
    if (service === null || service.project_id !== projectId || (service.deleted && config.deletedToo !== true))
      throw serviceNotFound(serviceId);
    request.service = service;
    if (config.prodNeedsAdmin === true && service.environment === 'PROD')
      assertRole(request.key.role, ['admin'], 'do this to a PROD service');
  };
}

function assertRole(role: Role, allowed: readonly Role[], what: string): void {
  if (!allowed.includes(role))
    throw new ApiError('FORBIDDEN', `a key with the role ${role} may not ${what}; it takes a key with the role ${allowed.join(' or ')}`);
}

/** The two halves of the key in an Authorization header; null when there are none. */
export function parseAuthorization(header: string | undefined): { publicKey: string; secretKey: string } | null {
  const [, scheme, value] = /^(Bearer|Basic) +([^ ]+) *$/i.exec(header ?? '') ?? [];
  if (scheme === undefined || value === undefined) return null;
  const pair = scheme.toLowerCase() === 'basic' ? Buffer.from(value, 'base64').toString('utf8') : value;
  const colon = pair.indexOf(':');
  const publicKey = pair.slice(0, colon);
  // What cannot be a key is not looked for: the store cannot even be asked for a NUL.
  if (colon < 1 || !/^[A-Za-z0-9_-]{1,64}$/.test(publicKey)) return null;
  return { publicKey, secretKey: pair.slice(colon + 1) };
}

/** What is stored of a key's secret half. */
export function sha256(secret: string): Buffer {
  return createHash('sha256').update(secret).digest();
}

const NO_HASH = Buffer.alloc(32);

function parametersOf(params: unknown): { project_id?: string; service_id?: string } {
  if (typeof params !== 'object' || params === null) return {};
  const text = (name: string): string | undefined => {
    const value: unknown = Reflect.get(params, name);
    return typeof value === 'string' ? value : undefined;
  };
  const [projectId, serviceId] = [text('project_id'), text('service_id')];
  return { ...(projectId === undefined ? {} : { project_id: projectId }), ...(serviceId === undefined ? {} : { service_id: serviceId }) };
}
