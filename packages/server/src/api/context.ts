/** The arguments of the routes: the context of the services that they call, and the HTTP server. */
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
import type { Rounds } from '../lib/rounds.ts';
import type { ServerCertificate } from '../lib/tls.ts';
import type { OperationContext } from '../services/operations.ts';
import type { PeeringContext } from '../services/peerings.ts';
import type { RepositoryContext } from '../services/repositories.ts';
import type { KubernetesRegionContext } from '../services/kubernetes-regions.ts';
import type { WebhookContext } from '../services/webhooks.ts';

/** The context that every route gets. */
export type ApiContext = OperationContext &
  PeeringContext &
  WebhookContext &
  RepositoryContext &
  KubernetesRegionContext & {
    http: HttpSettings;
    /** The rounds of the control plane, for its metrics. */
    rounds: Pick<Rounds, 'figures'>;
    events: EventHub;
    /** The certificate of our CA. */
    caPem: string;
    /** For how long a deleted service can be restored. */
    restoreWindowMs: number;
    /** Examines the machine. */
    doctor: () => Promise<Finding[]>;
    /** Why the control plane is not ready; null: it is. */
    notReady: () => Promise<string | null>;
  };

/** The address of the API, and the limits of its callers. */
export type HttpSettings = {
  /** The certificate for TLS; null: plain HTTP. */
  certificate: ServerCertificate | null;
  /** Addresses and networks of proxies that are trusted to name the client's address. */
  trustedProxies: readonly string[];
  /** Host names of the API, beside its addresses. */
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
