/** Examines the TLS gateway of a region: by the way that clients take. */
import { once } from 'node:events';
import { connect as connectTcp } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { Finding } from '@howdah/contract';
import { Type } from 'typebox';
import type { Endpoint } from '../spec.ts';
import { newId } from '../../lib/ids.ts';
import type { Kube } from './api/client.ts';
import { KINDS } from './api/kinds.ts';
import { DEPLOYMENT } from './doctor.ts';
import { LABELS, MANAGED } from './manifests/names.ts';
import { GATEWAY_NAMESPACE, publicEndpoint } from './manifests/route.ts';
import { requestTls } from './service/challenge.ts';

const ROUTE = Type.Object({
  metadata: Type.Object({
    namespace: Type.String(),
    labels: Type.Optional(Type.Record(Type.String(), Type.String())),
  }),
});

/** A region whose services have routes at the gateway of a cluster; null: there is none. */
export async function findRoutedRegion(kube: Kube): Promise<string | null> {
  const services = { kind: KINDS.service, namespace: null, name: null };
  const { items } = await kube.list(services, ROUTE, MANAGED);
  const route = items.find(({ metadata }) => metadata.namespace === GATEWAY_NAMESPACE);
  return route === undefined ? null : (route.metadata.labels?.[LABELS.region] ?? 'without a code');
}

export async function examineGateway(kube: Kube, domain: string): Promise<Finding[]> {
  const findings = [examineDeployment(kube), examineName(domain)];
  return Promise.all(
    findings.map((finding) =>
      finding.catch((error: unknown): Finding => ({
        what: 'TLS gateway',
        state: 'missing',
        found: error instanceof Error ? error.message : String(error),
        remedy: APPLY,
      })),
    ),
  );
}

const APPLY = 'kubectl apply -f deploy/kubernetes/gateway.yaml (docs/kubernetes.md)';

async function examineDeployment(kube: Kube): Promise<Finding> {
  const what = 'TLS gateway';
  const all = { kind: KINDS.deployment, namespace: null, name: null };
  const { items } = await kube.list(all, DEPLOYMENT, {
    'app.kubernetes.io/name': 'howdah-gateway',
  });
  const gateway = items.find(({ metadata }) => metadata.namespace === GATEWAY_NAMESPACE);
  const ready = gateway?.status?.readyReplicas ?? 0;
  if (gateway === undefined)
    return {
      what,
      state: 'missing',
      found: `no Deployment in ${GATEWAY_NAMESPACE}`,
      remedy: APPLY,
    };
  const found = `${GATEWAY_NAMESPACE}/${gateway.metadata.name}, ${ready} ready`;
  if (ready > 0) return { what, state: 'ok', found };
  const remedy = `kubectl --namespace ${GATEWAY_NAMESPACE} describe pods`;
  return { what, state: 'missing', found, remedy };
}

/** Asks for a service that nobody has: the gateway alone refuses it by the name. */
async function examineName(domain: string): Promise<Finding> {
  const what = 'names of services';
  const endpoint = publicEndpoint(domain, newId(), 'servers');
  const answer = await answerOf(endpoint);
  if (NO_ADDRESS.includes(answer))
    return {
      what,
      state: 'missing',
      found: `*.${domain} has no address`,
      remedy: `make a DNS record *.${domain} with ${ADDRESS}`,
    };
  const at = `*.${domain}, port ${endpoint.port}`;
  if (answer === UNRECOGNIZED_NAME) return { what, state: 'ok', found: at };
  return {
    what,
    state: 'missing',
    found: `${at}: ${answer}`,
    remedy:
      `give *.${domain} ${ADDRESS}, open its port ${endpoint.port}, and let the pods of the ` +
      'gateway reach the DNS of the cluster',
  };
}

const ADDRESS = `the address of the Service in ${GATEWAY_NAMESPACE}`;
const NO_ADDRESS: readonly string[] = ['ENOTFOUND', 'EAI_AGAIN'];
/** OpenSSL's name of the alert of the gateway. */
const UNRECOGNIZED_NAME = 'ERR_SSL_TLSV1_UNRECOGNIZED_NAME';
const WITHIN_MS = 10_000;

/** @returns the code or the message of the error */
async function answerOf({ host, port }: Endpoint): Promise<string> {
  const tcp = connectTcp({ host, port });
  const timer = setTimeout(() => tcp.destroy(new Error('no answer')), WITHIN_MS);
  try {
    await once(tcp, 'connect');
    await requestTls(tcp);
    const tls = connectTls({ socket: tcp, servername: host });
    await once(tls, 'secureConnect');
    return 'another program answers';
  } catch (error) {
    if (!(error instanceof Error)) return String(error);
    return 'code' in error && typeof error.code === 'string' ? error.code : error.message;
  } finally {
    clearTimeout(timer);
    tcp.destroy();
  }
}
