/**
 * Who calls, and whether they may: key, then project, then resource. The body is not read before
 * that.
 */
import {
  ApiError,
  denial,
  denialOfDryRunOnly,
  denialOfForkOnly,
  isId,
  permissionOf,
  PURGE,
  type KeyFacts,
  type Permission,
} from '@howdah/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { isSecret } from '../lib/secret.ts';
import { peeringNotFound } from '../services/peerings.ts';
import { projectNotFound } from '../services/projects.ts';
import { replicaSetNotFound } from '../services/replica-sets.ts';
import { serviceNotFound } from '../services/service-rules.ts';
import { vpcNotFound } from '../services/vpcs.ts';
import type { Store } from '../store/database.ts';
import { keyReader, touchKey, type KeyRow } from '../store/keys.ts';
import { createDocumentReader, type ServiceDoc } from '../store/service-documents.ts';
import { findPeering, type PeeringRow, findVpc, type VpcRow } from '../store/vpcs.ts';
import { beginChange } from './change-requests.ts';
import type { Session } from './console.ts';
import { createFailures } from './errors.ts';
import { parametersOf, parseAuthorization, type PresentedKey } from './audit-log.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** The key of the caller; set on every route of the API but the public ones. */
    key: KeyRow;
    /** The service that the path names, of the caller's project. */
    service: ServiceDoc;
    /** The VPC that the path names, of the caller's project. */
    vpc: VpcRow;
    /** The peering that the path names, of that VPC. */
    peering: PeeringRow;
  }
  interface FastifyContextConfig {
    /** Answered without a key. */
    public?: boolean;
    /** With `?purge=true` it reaches deleted services as well, and takes an admin key. */
    purges?: boolean;
    /** Reaches services that are deleted and can be restored. */
    deletedToo?: boolean;
    /** Answers for read replica sets as well, each by its own id. */
    setsToo?: boolean;
    /** Admin keys of the operator project reach every project here. */
    operatorToo?: boolean;
  }
}

/** How precise `last_used` is. */
const TOUCH_EVERY_MS = 60_000;

type FindSession = (request: FastifyRequest) => Promise<Session | null>;
type RefuseChange = (request: FastifyRequest, reply: FastifyReply) => void;
type Guard = Readonly<{
  store: Store;
  failedKeysPerMinute: number;
  failures: ReturnType<typeof createFailures>;
  readKey: (publicKey: string) => Promise<KeyRow | null>;
  readDoc: (id: string) => Promise<ServiceDoc | null>;
  findSession: FindSession;
  refuseChange: RefuseChange;
}>;
/** A key, and the secret that the caller has sent for it. */
type Caller = { key: KeyRow; secret: string };

/**
 * @param findSession the session of the web console that a request carries; null: none
 * @param refuseChange throws where the project has made too many changes
 * @returns what runs before anything else of a request
 */
export function createGuard(
  store: Store,
  failedKeysPerMinute: number,
  findSession: FindSession,
  refuseChange: RefuseChange,
): (request: FastifyRequest, reply: FastifyReply) => Promise<void> {
  const guard: Guard = {
    store,
    failedKeysPerMinute,
    failures: createFailures(failedKeysPerMinute),
    readKey: keyReader(store.pool),
    readDoc: createDocumentReader(store.pool),
    findSession,
    refuseChange,
  };
  return async (request, reply) => {
    if (request.routeOptions.config.public !== true) await checkRequest(guard, request, reply);
  };
}

async function checkRequest(
  guard: Guard,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<void> {
  const { config } = request.routeOptions;
  const path = parametersOf(request.params);
  // Read beside the key, since each is a round trip; no answer depends on them before the key is
  // checked.
  const service = readIfId(guard, path.service_id);
  const set = readIfId(guard, path.replica_set_id);
  const { key, secret } = await identify(guard, request);
  request.key = key;
  const permission = permissionOfRoute(request);
  checkProject(request, permission, path.project_id);
  // A PROD service is protected in the transaction that ends it (services/permissions.ts).
  const purges = config.purges === true && asksForPurge(request.query);
  checkRole(key, permission, purges);
  if (permission.changes) await beginChange(guard.store, request, secret);
  guard.refuseChange(request, reply);
  // A repeated request gets the kept answer, even if its service has changed since.
  if (request.change?.kept != null) return;
  if (path.service_id !== undefined) {
    request.service = serviceOrRefuse(request, path.service_id, await service, purges);
    const setId = path.replica_set_id;
    if (setId !== undefined && (await set)?.parent_id !== path.service_id)
      throw replicaSetNotFound(setId);
  }
  const createdBy = path.service_id === undefined ? null : request.service.created_by;
  const notItsFork = denialOfForkOnly(factsOf(key), permission, createdBy);
  if (notItsFork !== null) throw new ApiError('FORBIDDEN', notItsFork);
  if (path.vpc_id !== undefined)
    await findVpcIn(guard.store, request, path.vpc_id, path.peering_id);
}

/** Null for what is no id: nothing has it, and PostgreSQL refuses a text with a NUL. */
function readIfId({ readDoc }: Guard, id: string | undefined): Promise<ServiceDoc | null> {
  if (id === undefined || !isId(id)) return Promise.resolve(null);
  const reading = readDoc(id);
  // A request that is refused before waits for it no more.
  reading.catch(() => undefined);
  return reading;
}

async function identify(guard: Guard, request: FastifyRequest): Promise<Caller> {
  const { authorization } = request.headers;
  const session = authorization === undefined ? await guard.findSession(request) : null;
  const caller =
    session === null
      ? await authenticate(guard, parseAuthorization(authorization), request)
      : { key: session.key, secret: session.token };
  if (isUseNews(caller.key)) {
    // A metadata database without disk space still answers reads.
    await touchKey(guard.store.db, caller.key.key).catch((error: unknown) =>
      request.log.warn({ err: error }, 'the last use of a key was not noted'),
    );
  }
  return caller;
}

async function authenticate(
  { readKey, failures, failedKeysPerMinute }: Guard,
  presented: PresentedKey | null,
  request: FastifyRequest,
): Promise<Caller> {
  if (presented === null) {
    const found = request.headers.authorization === undefined ? 'missing' : 'not understood';
    throw new ApiError(
      'UNAUTHORIZED',
      `Authorization: ${found}; send "Bearer <public_key>:<secret_key>", ` +
        'or Basic with the two halves',
    );
  }
  const row = await readKey(presented.publicKey);
  // A key that does not exist is compared too, so that the time of an answer does not show which
  // keys exist.
  const matches = isSecret(presented.secretKey, row?.secret_hash ?? NO_HASH);
  if (row !== null && matches && row.valid) return { key: row, secret: presented.secretKey };
  // Wrong keys are counted by address, but a valid key is accepted from any.
  if (!failures.note(request.ip))
    throw new ApiError(
      'RATE_LIMITED',
      `Authorization: more than ${failedKeysPerMinute} keys from ${request.ip} were wrong ` +
        'within a minute; wait a minute, and use a valid key',
    );
  throw new ApiError(
    'UNAUTHORIZED',
    'Authorization: no valid key: unknown, revoked, expired or a wrong secret',
  );
}

function checkProject(
  { key, routeOptions: { config } }: FastifyRequest,
  permission: Permission,
  projectId: string | undefined,
): void {
  const operates = key.operator && key.role === 'admin';
  if (permission.operator === true && !operates)
    throw new ApiError(
      'FORBIDDEN',
      'this needs an admin key of the operator project, such as the one that howdah up made',
    );
  if (projectId === undefined || projectId === key.project_id) return;
  if (!(config.operatorToo === true && operates))
    throw new ApiError(
      'FORBIDDEN',
      'this key has no access to that project; GET /projects lists those that it has access to',
    );
  // PostgreSQL refuses a text with a NUL.
  if (!isId(projectId)) throw projectNotFound(projectId);
}

function checkRole(key: KeyRow, permission: Permission, purges: boolean): void {
  const denied =
    denial(key.role, purges ? PURGE : permission) ??
    (permission.dryRunOnly === 'never' ? denialOfDryRunOnly(factsOf(key), permission) : null);
  if (denied !== null) throw new ApiError('FORBIDDEN', denied);
}

/** The service that the path names, if the route reaches it. @throws ApiError */
export function serviceOrRefuse(
  { params, routeOptions: { config } }: Pick<FastifyRequest, 'params' | 'routeOptions'>,
  serviceId: string,
  service: ServiceDoc | null,
  purges: boolean,
): ServiceDoc {
  if (
    service === null ||
    service.project_id !== parametersOf(params).project_id ||
    (service.deleted && config.deletedToo !== true && !purges)
  )
    throw serviceNotFound(serviceId);
  const { parent_id: parent } = service;
  if (parent !== null && config.setsToo !== true)
    throw new ApiError(
      'INVALID_REQUEST',
      `${serviceId} is a read replica set of ${parent}: what can be done to it is below ` +
        `/projects/{project_id}/services/${parent}/replicaSets/${serviceId}`,
    );
  return service;
}

const factsOf = ({ key, role, fork_only, dry_run_only }: KeyRow): KeyFacts => ({
  public_key: key,
  role,
  fork_only,
  dry_run_only,
});

/** The schema of the route refuses all but true and false. */
function asksForPurge(query: unknown): boolean {
  return typeof query === 'object' && query !== null && 'purge' in query && query.purge === 'true';
}

/** Finds the VPC that a path names, and its peering, for the handler. */
async function findVpcIn(
  store: Store,
  request: FastifyRequest,
  vpcId: string,
  peeringId: string | undefined,
): Promise<void> {
  const vpc = await findVpc(store.db, vpcId);
  if (vpc === null || vpc.project_id !== request.key.project_id) throw vpcNotFound(vpcId);
  request.vpc = vpc;
  if (peeringId === undefined) return;
  const peering = await findPeering(store.db, vpcId, peeringId);
  if (peering === null) throw peeringNotFound(peeringId);
  request.peering = peering;
}

/** Whether `last_used` must be written again. */
function isUseNews({ last_used: lastUsed }: KeyRow): boolean {
  return lastUsed === null || Date.now() - lastUsed.getTime() > TOUCH_EVERY_MS;
}

/**
 * A route without a row in the table would be open to everybody: a unit test fails before this
 * does.
 */
function permissionOfRoute({ routeOptions: { schema, url } }: FastifyRequest): Permission {
  const permission = permissionOf(schema?.operationId);
  if (permission === null)
    throw new Error(`${url ?? ''} is missing from ACCESS in packages/contract/src/permissions.ts`);
  return permission;
}

const NO_HASH = Buffer.alloc(32);
