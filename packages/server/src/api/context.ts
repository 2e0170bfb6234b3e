/** What the routes are given: the services they call, and the HTTP server they declare themselves on. */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import type { Finding } from '@howdah/contract';
import type {
  FastifyBaseLogger,
  FastifyInstance,
  RawReplyDefaultExpression,
  RawRequestDefaultExpression,
  RawServerDefault,
} from 'fastify';
import type { EventHub } from '../events/hub.ts';
import type { ServerCertificate } from '../lib/tls.ts';
import type { ControlContext } from '../services/context.ts';
import type { Operations } from '../services/operations.ts';
import type { Peerings } from '../services/peerings.ts';
import type { Projects } from '../services/projects.ts';
import type { ReplicaSetCalls } from '../services/replica-sets.ts';
import type { VpcServices } from '../services/vpcs.ts';
import type { Webhooks } from '../services/webhooks.ts';

/** What every route can use. */
export type ApiContext = ControlContext & {
  projects: Projects;
  vpcs: VpcServices;
  peerings: Peerings;
  http: HttpSettings;
  operations: Operations;
  webhooks: Webhooks;
  events: EventHub;
  replicaSets: ReplicaSetCalls;
  /** The certificate of our CA. */
  caPem: string;
  /** For how long a deleted service can be restored. */
  undeleteMs: number;
  /** Looks the machine over. */
  doctor: () => Promise<Finding[]>;
  /** Whether the control plane does its work; null when it does, else why not. */
  notReady: () => Promise<string | null>;
};

/** The address of the API, and the limits of its callers. */
export type HttpSettings = {
  /** The certificate for TLS; null: plain HTTP. */
  certificate: ServerCertificate | null;
  /** Addresses and networks whose word about the client's address is taken. */
  trustedProxies: readonly string[];
  /** By which it is known, beside its addresses. */
  names: readonly string[];
  connectionsPerAddress: number;
  failedKeysPerMinute: number;
  /** Accepted changes of a project. */
  changesPerDay: number;
};

export type App = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>;
