/** Starts and stops the pooler of a service. Each call can be repeated. */
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { Type } from 'typebox';
import { loadedExtensions } from '../../../domain/postgres/extension-rules.ts';
import { serverSettings } from '../../../domain/postgres/settings.ts';
import { isIssuedBy, issueClientCertificate } from '../../../lib/tls.ts';
import { EngineUnavailable } from '../../engine.ts';
import { VERIFIER_FUNCTION } from '../../pooler/lookup.ts';
import type { Endpoint, ServiceSpec } from '../../spec.ts';
import { beginReading } from '../../statements/run.ts';
import { openSession, SESSION_DEADLINE_MS } from '../../statements/session.ts';
import { KINDS } from '../api/kinds.ts';
import { clientAuthority, clusterName, poolerCertificate, poolerName, setName } from '../names.ts';
import { poolerManifests, type PoolerManifests } from './manifest.ts';
import { routePlace, writeRoute } from '../network/routes.ts';
import { poolerCertificateManifest } from '../cluster/secrets.ts';
import type { Region } from '../region/region.ts';
import { serverOf } from '../statements.ts';
import { askChallenge } from '../network/challenge.ts';
import { mustRun, type KnownPooler } from './decide.ts';
import { placesIn } from '../cluster/objects.ts';
import type { ClusterState } from '../cluster/state.ts';
import { STEPS } from '../cluster/steps.ts';

type Owned = ServiceSpec & { readonly projectId: string };

export function knownPooler(
  region: Region,
  spec: Owned,
  cluster: ClusterState | null,
): KnownPooler {
  const starting = region.startingPoolers.get(spec.id) ?? null;
  const desired = cluster === null ? null : desiredPooler(region, spec, cluster);
  const isCurrent = desired !== null && region.cache.pooler(spec.id)?.hash === desired.hash;
  return { isCurrent, starting };
}

/** @returns null: no pooler is wanted */
function desiredPooler(
  { settings }: Region,
  spec: Owned,
  cluster: ClusterState,
): PoolerManifests | null {
  const { id, projectId, pooler, size, major, storageGb, set } = spec;
  if (pooler === null || major === null) return null;
  const server = serverSettings({ size, major, extensions: loadedExtensions(spec), storageGb });
  return poolerManifests({
    id,
    cluster: cluster.name,
    server: `${cluster.name}-${set === null ? 'rw' : 'r'}`,
    roleSecret: poolerName(clusterName(set?.parent ?? id)),
    projectId,
    region: settings,
    placement: cluster.desired?.placement ?? {},
    pulls: cluster.desired?.pulls === true,
    nodePort: settings.domain === null ? pooler.port : null,
    running: mustRun(spec),
    networks: spec.allowedNetworks,
    major,
    maxConnections: Number(server['max_connections']),
    owner: cluster.uid,
  });
}

/** Where a pooler listens, for users. */
export const poolerPlace = ({ settings }: Region, { endpoint, pooler }: Owned): string =>
  settings.domain === null
    ? `port ${pooler?.port}`
    : `${pooler?.host ?? endpoint.host}:${pooler?.port}`;

/** Why a pooler does not let anybody log in yet. */
export type PoolerWait = Readonly<{ why: string; isObstacle: boolean }>;

/**
 * Brings a pooler up, as far as it is.
 *
 * @returns null: it lets tsdbadmin log in
 * @throws EngineUnavailable; Error when the service cannot have one
 */
export async function startPooler(
  region: Region,
  spec: Owned,
  cluster: ClusterState,
  step: string,
): Promise<PoolerWait | null> {
  const { cache, startingPoolers } = region;
  const { id } = spec;
  const desired = desiredPooler(region, spec, cluster);
  if (desired === null || spec.pooler === null) return null;
  if (cache.pooler(id)?.hash !== desired.hash) {
    // Once: the owner of the database can refuse that session, and other rules must be written.
    if (cache.pooler(id) === null) await refuseWithoutLookup(region, id);
    await write(region, spec, desired);
  }
  startingPoolers.set(id, step);
  const { obstacle } = cache.poolerPods(id);
  if (cache.pooler(id)?.isReady !== true)
    return { why: obstacle ?? 'the pod of PgBouncer starts', isObstacle: obstacle !== null };
  const why = await whyNoLogin(region, spec.endpoint, { ...spec.endpoint, ...spec.pooler });
  if (why !== null) return { why, isObstacle: false };
  startingPoolers.delete(id);
  return null;
}

/**
 * Has a pooler that runs examine its clients by the networks as desired, before its server does.
 * Nothing is waited for: no server can keep the rules of before by its state. The end of the pods
 * of before is a part of the step that follows, `reload connection pooler`.
 */
export async function limitPooler(
  region: Region,
  spec: Owned,
  cluster: ClusterState,
): Promise<void> {
  const { allowedNetworks, id } = spec;
  if (allowedNetworks === null || region.cache.pooler(id)?.isWanted !== true) return;
  if (isDeepStrictEqual(cluster.desired?.networks, [...allowedNetworks])) return;
  const desired = desiredPooler(region, spec, cluster);
  if (desired === null) return;
  await write(region, spec, desired);
  region.startingPoolers.set(id, STEPS.reloadPooler);
}

async function write(
  region: Region,
  spec: Owned,
  { service, deployment }: PoolerManifests,
): Promise<void> {
  const { kube, cache } = region;
  const place = placesIn(spec.projectId);
  if (spec.allowedNetworks !== null && mustRun(spec)) await ensureClientCertificate(region, spec);
  const name = nameOf(spec);
  await kube.apply(place(KINDS.service, name), service);
  await writeRoute(region, spec, 'pooler');
  cache.putPooler(await kube.apply(place(KINDS.deployment, name), deployment));
}

const clusterOf = ({ id, set }: Pick<ServiceSpec, 'id' | 'set'>): string =>
  set === null ? clusterName(id) : setName(id);
const nameOf = (spec: Pick<ServiceSpec, 'id' | 'set'>): string => poolerName(clusterOf(spec));

const AUTHORITY = Type.Object({
  data: Type.Object({ 'ca.crt': Type.String(), 'ca.key': Type.String() }),
});
const CERTIFICATE = Type.Object({ data: Type.Object({ 'tls.crt': Type.String() }) });

/** Issues the certificate by which servers know the pooler, if they do not know the one it has. */
async function ensureClientCertificate({ kube }: Region, spec: Owned): Promise<void> {
  const cluster = clusterOf(spec);
  const place = placesIn(spec.projectId);
  const found = await kube.get(place(KINDS.secret, clientAuthority(cluster)), AUTHORITY);
  if (found === null)
    throw new EngineUnavailable(
      `it has no secret ${clientAuthority(cluster)} of CloudNativePG yet`,
    );
  const authority = {
    certificatePem: decode(found.data['ca.crt']),
    keyPem: decode(found.data['ca.key']),
  };
  const own = place(KINDS.secret, poolerCertificate(cluster));
  const before = await kube.get(own, CERTIFICATE);
  if (before !== null && isIssuedBy(authority, decode(before.data['tls.crt']))) return;
  const certificate = await issueClientCertificate(authority, nameOf(spec));
  await kube.apply(own, poolerCertificateManifest(cluster, spec.id, spec.projectId, certificate));
}

const decode = (base64: string): string => Buffer.from(base64, 'base64').toString('utf8');

/**
 * Why nobody can log in through the pooler; null: everybody can. It asks the server for the
 * verifier of a role, so its challenge has the salt that the server's has.
 */
async function whyNoLogin(
  { authority }: Region,
  server: Endpoint,
  pooler: Endpoint,
): Promise<string | null> {
  try {
    const [direct, pooled] = await Promise.all(
      [server, pooler].map((endpoint) => askChallenge(endpoint, authority.certificatePem)),
    );
    if (direct?.kind !== 'salt' || pooled?.kind !== 'salt') return null;
    return direct.salt === pooled.salt ? null : 'PgBouncer does not find the role tsdbadmin yet';
  } catch (error) {
    if (error instanceof EngineUnavailable) return error.message;
    throw error;
  }
}

/**
 * Scales a pooler down with its service, so that it keeps its port, or removes it.
 *
 * @returns a line for users
 */
export async function stopPooler(
  region: Region,
  spec: Owned,
  cluster: ClusterState,
): Promise<string> {
  region.startingPoolers.delete(spec.id);
  const desired = desiredPooler(region, spec, cluster);
  if (desired === null) {
    await removePooler(region, spec);
    return 'disabled';
  }
  await write(region, spec, desired);
  return 'paused';
}

/** Removes a pooler that is not wanted any more. */
export async function removePooler(
  { kube, cache, settings }: Region,
  spec: Pick<Owned, 'id' | 'projectId' | 'set'>,
): Promise<void> {
  const place = placesIn(spec.projectId);
  await kube.remove(place(KINDS.service, nameOf(spec)));
  if (settings.domain !== null) await kube.remove(routePlace(spec.id, 'pooler'));
  await kube.remove(place(KINDS.secret, poolerCertificate(clusterOf(spec))));
  // Last: without it nothing would look for the others.
  await kube.remove(place(KINDS.deployment, nameOf(spec)));
  // The next step is decided without it.
  const endMs = Date.now() + NOTICED_WITHIN_MS;
  while (cache.pooler(spec.id) !== null && Date.now() < endMs) await sleep(NOTICED_MS);
}

/**
 * How long the end of a removed object may take to be noticed, as an answer of the API server;
 * later, it is removed again.
 */
const NOTICED_WITHIN_MS = 30_000;
const NOTICED_MS = 20;

const FACTS = `pg_catalog.to_regprocedure('${VERIFIER_FUNCTION}(pg_catalog.text)') is not null
  as "hasLookup"`;

/** @throws EngineUnavailable; Error when the database has no function that gives verifiers */
async function refuseWithoutLookup(region: Region, id: string): Promise<void> {
  const server = await serverOf(region, id);
  const client = await openSession(server, SESSION_DEADLINE_MS);
  const facts = await beginReading<{ hasLookup: boolean }>(client, server, FACTS);
  client.connection.stream.destroy();
  if (facts?.hasLookup === true) return;
  throw new Error(
    'its database has no function that gives PgBouncer the verifiers of roles, since an earlier ' +
      'release or template0 made it: create a service, copy the data with pg_dump, and disable ' +
      'the pooler here',
  );
}
