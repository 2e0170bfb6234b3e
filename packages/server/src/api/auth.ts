/** Who asks, and whether they may: key, then project, then resource. Bodies are not even read before that. */
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
import { findPeering, type PeeringRow } from '../store/peerings.ts';
import { findVpc, type VpcRow } from '../store/vpcs.ts';
import { beginChange } from './changes.ts';
import type { Session } from './console.ts';
import { createFailures } from './failures.ts';
import { parametersOf, parseAuthorization, type PresentedKey } from './presented.ts';

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

/**
 * @param findSession the session of the web console that a request carries; null: none
 * @param refuseChange throws where the project has made too many changes
 */
export function createGuard(
  store: Store,
  failedKeysPerMinute: number,
  findSession: (request: FastifyRequest) => Promise<Session | null>,
  refuseChange: (request: FastifyRequest, reply: FastifyReply) => void,
) {
  const readKey = keyReader(store.pool);
  const readDoc = createDocumentReader(store.pool);
  const failures = createFailures(failedKeysPerMinute);

  const authenticate = async (
    presented: PresentedKey | null,
    request: FastifyRequest,
  ): Promise<KeyRow> => {
    if (presented === null) {
      const found = request.headers.authorization === undefined ? 'missing' : 'not understood';
      throw new ApiError(
        'UNAUTHORIZED',
        `Authorization: ${found}; send "Bearer <public_key>:<secret_key>", or Basic with the two halves`,
      );
    }
    const row = await readKey(presented.publicKey);
    // A key that does not exist is compared too, so that an answer's time does not tell which keys there are.
    const matches = isSecret(presented.secretKey, row?.secret_hash ?? NO_HASH);
    if (row === null || !matches || !row.valid) {
      // A good key is let through whatever others do from the same address.
      if (!failures.note(request.ip))
        throw new ApiError(
          'RATE_LIMITED',
          `Authorization: more than ${failedKeysPerMinute} keys from ${request.ip} were wrong within a minute; wait a minute, and use a valid key`,
        );
      throw new ApiError(
        'UNAUTHORIZED',
        'Authorization: no valid key: unknown, revoked, expired or a wrong secret',
      );
    }
    return row;
  };

  /** Runs before anything else of a request. */
  return async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const { config } = request.routeOptions;
    if (config.public === true) return;
    const {
      project_id: projectId,
      service_id: serviceId,
      vpc_id: vpcId,
      peering_id: peeringId,
      replica_set_id: setId,
    } = parametersOf(request.params);
    // Read beside the key, since each is a round trip; nothing of it is told before the key has been checked. What is no id is
    // nobody's, and the store cannot even be asked for a NUL.
    const reading =
      serviceId !== undefined && isId(serviceId) ? readDoc(serviceId) : Promise.resolve(null);
    reading.catch(() => undefined);
    const readingSet = setId !== undefined && isId(setId) ? readDoc(setId) : Promise.resolve(null);
    readingSet.catch(() => undefined);
    const presented = parseAuthorization(request.headers.authorization);
    const session = request.headers.authorization === undefined ? await findSession(request) : null;
    const key = session?.key ?? (await authenticate(presented, request));
    if (isUseNews(key)) {
      // A metadata database without space for it answers reads all the same.
      await touchKey(store.db, key.key).catch((error: unknown) =>
        request.log.warn({ err: error }, 'the last use of a key was not noted'),
      );
    }
    request.key = key;
    const permission = permissionOfRoute(request);
    const operates = key.operator && key.role === 'admin';
    if (permission.operator === true && !operates)
      throw new ApiError(
        'FORBIDDEN',
        'it takes an admin key of the operator project: the one that howdah up made',
      );
    if (projectId !== undefined && projectId !== key.project_id) {
      if (!(config.operatorToo === true && operates))
        throw new ApiError(
          'FORBIDDEN',
          'this key does not reach that project; GET /projects lists those it does',
        );
      // The store cannot even be asked for a NUL.
      if (!isId(projectId)) throw projectNotFound(projectId);
    }
    // What would be ended is looked at in the transaction that ends it (services/permissions.ts).
    const purges = config.purges === true && asksForPurge(request.query);
    const denied = denial(key.role, purges ? PURGE : permission);
    if (denied !== null) throw new ApiError('FORBIDDEN', denied);
    const withoutDryRun =
      permission.dryRunOnly === 'never' ? denialOfDryRunOnly(factsOf(key), permission) : null;
    if (withoutDryRun !== null) throw new ApiError('FORBIDDEN', withoutDryRun);
    if (permission.changes)
      await beginChange(store, request, session?.token ?? presented?.secretKey ?? '');
    refuseChange(request, reply);
    // What was answered before is answered again, whatever has become of the service since.
    if (request.change?.kept != null) return;
    const service = serviceId === undefined ? null : await reading;
    if (serviceId !== undefined) {
      if (
        service === null ||
        service.project_id !== projectId ||
        (service.deleted && config.deletedToo !== true && !purges)
      )
        throw serviceNotFound(serviceId);
      const { parent_id: parent } = service;
      if (parent !== null && config.setsToo !== true)
        throw new ApiError(
          'INVALID_REQUEST',
          `${serviceId} is a read replica set of ${parent}: what can be done to it is below /projects/{project_id}/services/${parent}/replicaSets/${serviceId}`,
        );
      if (setId !== undefined && (await readingSet)?.parent_id !== serviceId)
        throw replicaSetNotFound(setId);
      request.service = service;
    }
    const notItsFork = denialOfForkOnly(factsOf(key), permission, service?.created_by ?? null);
    if (notItsFork !== null) throw new ApiError('FORBIDDEN', notItsFork);
    if (vpcId !== undefined) await findVpcIn(store, request, vpcId, peeringId);
  };
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

/** Notes the VPC that a path names, and its peering. */
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

/** Whether when the key was used last is to be noted again. */
function isUseNews({ last_used: lastUsed }: KeyRow): boolean {
  return lastUsed === null || Date.now() - lastUsed.getTime() > TOUCH_EVERY_MS;
}

/** A route without a row in the table would be open to everybody: a unit test fails before this does. */
function permissionOfRoute({ routeOptions: { schema, url } }: FastifyRequest): Permission {
  const permission = permissionOf(schema?.operationId);
  if (permission === null)
    throw new Error(`${url ?? ''} is missing from ACCESS in packages/contract/src/permissions.ts`);
  return permission;
}

const NO_HASH = Buffer.alloc(32);
