/**
 * Shared by the tests of VPCs: a project's calls, clients in a network, and installations with
 * either way to separate networks.
 */
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import type { Target } from './client.ts';
import { install, type Installation } from './harness.ts';
import { hurried } from './tuning.ts';
import type { Service } from './harness-caller.ts';
import { openMetadata } from './metadata.ts';
import {
  findProgram,
  findSite,
  insertKey,
  insertProject,
  newId,
  probeNetworks,
  sha256,
} from './probe.ts';
import { project, type Call, type Project, type Vpc } from './vpc-calls.ts';
import { untilExpected } from './until.ts';

export type ServiceAccess = Service & { initial_password: string };

const root = process.getuid?.() === 0;
export const ability = await probeNetworks();
export const [haproxy, pgbouncer] = await Promise.all([
  findProgram('haproxy'),
  findProgram('pgbouncer'),
]);
if (ability.method !== 'bridge')
  process.stdout.write(`VPCs as networks are not tested here: ${ability.note}\n`);
/**
 * Root that may not change networks: the way by address, on a machine where the other would be
 * taken.
 */
const WITHOUT_NETWORKS = root
  ? ['setpriv', '--bounding-set=-net_admin', '--inh-caps=-net_admin', '--']
  : [];

export const sh = promisify(execFile);

/** Another project of an installation, with a key of its own. */
export async function anotherProject(
  cloud: Installation,
): Promise<{ id: string; project: Project }> {
  const metadata = await openMetadata(cloud.home);
  const [id, publicKey, secret] = [newId(), `HD${newId()}`, 'a-secret'];
  await insertProject(metadata.db, { id, name: 'another' });
  await insertKey(metadata.db, {
    publicKey,
    secretHash: sha256(secret),
    projectId: id,
    name: 'test',
    role: 'admin',
  });
  await metadata.close();
  const call: Call = async (method, path, body) => {
    const response = await fetch(`${cloud.apiUrl}/projects/${id}${path}`, {
      method,
      headers: {
        Authorization: `Bearer ${publicKey}:${secret}`,
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    return {
      status: response.status,
      body: text === '' ? '' : JSON.parse(text),
      headers: response.headers,
    };
  };
  return { id, project: project(call) };
}

export async function attach(cloud: Installation, service: Service, vpc: Vpc): Promise<Service> {
  expect(
    (await cloud.request('POST', `/services/${service.service_id}/attachToVPC`, { vpc_id: vpc.id }))
      .status,
  ).toBe(202);
  return settled(cloud, service);
}
export async function detach(cloud: Installation, service: Service): Promise<Service> {
  expect(
    (await cloud.request('POST', `/services/${service.service_id}/detachFromVPC`)).status,
  ).toBe(202);
  return settled(cloud, service);
}
/** A service on which nothing is under way. */
export async function settled(cloud: Installation, { service_id: id }: Service): Promise<Service> {
  await untilExpected('nothing is under way at the service', async () =>
    expect((await cloud.operations(id)).every(({ finished }) => finished !== null)).toBe(true),
  );
  return cloud.get(id);
}
/** Waits until nothing is under way any more. */
export async function allEnded(cloud: Installation): Promise<void> {
  await untilExpected('nothing is under way', async () =>
    expect((await cloud.operations()).every(({ finished }) => finished !== null)).toBe(true),
  );
}
export async function destroyService(
  cloud: Installation,
  { service_id: id }: Service,
): Promise<void> {
  await cloud.request('DELETE', `/services/${id}`);
  await untilExpected('the service is deleted', async () =>
    expect((await cloud.request('GET', `/services/${id}`)).status).toBe(404),
  );
}
/** Expects that the integrity check finds nothing once nothing is under way. */
export const auditEnds = (cloud: Installation): Promise<void> =>
  untilExpected('the integrity check finds nothing', async () =>
    expect(await cloud.audit()).toEqual([]),
  );

// ── clients
// ─────────────────────────────────────────────────────────────────────────────────────────────────

const clients: ChildProcess[] = [];
afterEach(async () => {
  for (const child of clients.splice(0)) child.stdin?.end();
});

export type Reachable = { host: string; port: number };

/**
 * A client that is somewhere. @param within the command that puts it there; @returns how it went,
 * and when it ended
 */
export async function visit(
  cloud: Installation,
  service: ServiceAccess,
  { host, port }: Reachable,
  {
    within = [],
    from,
    database = 'tsdb',
    patienceMs = 2000,
  }: { within?: readonly string[]; from?: string; database?: string; patienceMs?: number },
) {
  const target: Target = {
    host,
    port,
    database,
    password: service.initial_password,
    ca: await cloud.caPem(),
    patienceMs,
    ...(from === undefined ? {} : { from }),
  };
  const [program, ...words] = [
    ...within,
    process.execPath,
    '--import',
    'tsx',
    join(import.meta.dirname, 'client.ts'),
    JSON.stringify(target),
  ] as const;
  const child = spawn(program, words, { stdio: ['pipe', 'pipe', 'inherit'] });
  clients.push(child);
  let said = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (said += text));
  await untilExpected('the client reports how it connected', () => expect(said).toMatch(/\n/));
  return {
    how: said.trim(),
    ends: () =>
      untilExpected('the session of the client ends', () => expect(said).toContain('ended')),
    goesOn: () => !said.includes('ended'),
  };
}

export const vpcEndpointOf = ({ vpc_endpoint: endpoint }: Service): Reachable => {
  if (endpoint === undefined) throw new Error('it is in no VPC');
  return endpoint;
};
export const LONG = 60_000;

// ── networks
// ─────────────────────────────────────────────────────────────────────────────────────────────────

export type Net = { name: string; within: string[]; remove: () => Promise<unknown> };

/** A network namespace of a test, put on the bridge of a VPC as a container would be. */
export async function plug(
  cloud: Installation,
  vpc: Vpc | null,
  address: string | null,
): Promise<Net> {
  const name = `hdt-${randomBytes(4).toString('hex')}`;
  await sh('ip', ['netns', 'add', name]);
  await sh('ip', ['-n', name, 'link', 'set', 'lo', 'up']);
  if (vpc !== null && address !== null) await plugIn(cloud, name, vpc, address);
  return {
    name,
    within: ['nsenter', `--net=/run/netns/${name}`, '--'],
    remove: () => sh('ip', ['netns', 'del', name]),
  };
}

async function plugIn(cloud: Installation, name: string, vpc: Vpc, address: string): Promise<void> {
  const network = await namespaceOf(cloud, vpc);
  const port = `p${randomBytes(4).toString('hex')}`;
  await sh('ip', [
    '-n',
    name,
    'link',
    'add',
    'eth0',
    'type',
    'veth',
    'peer',
    'name',
    port,
    'netns',
    network,
  ]);
  await sh('ip', ['-n', network, 'link', 'set', port, 'master', 'vpc', 'up']);
  await sh('ip', ['-n', name, 'link', 'set', 'eth0', 'up']);
  await sh('ip', [
    '-n',
    name,
    'addr',
    'add',
    `${address}/${vpc.cidr.split('/')[1]}`,
    'dev',
    'eth0',
  ]);
  await sh('ip', [
    '-n',
    name,
    'route',
    'add',
    'default',
    'via',
    vpc.cidr.replace(/\d+\/\d+$/, '1'),
  ]);
}

export const prefixOf = async (cloud: Installation): Promise<string> =>
  (await findSite(cloud.home))?.networkPrefix ?? '';
export const namespaceOf = async (cloud: Installation, vpc: Vpc): Promise<string> =>
  `${await prefixOf(cloud)}${vpc.id}`;
export const namespacesOf = async (cloud: Installation): Promise<string[]> => {
  const prefix = await prefixOf(cloud);
  return (await readdir('/run/netns')).filter((name) => name.startsWith(prefix));
};

export async function goesWithoutTrace(cloud: Installation, own: Project, vpc: Vpc): Promise<void> {
  const name = await namespaceOf(cloud, vpc);
  expect(await namespacesOf(cloud)).toContain(name);
  await own.remove(vpc);
  await untilExpected('the namespace is removed', async () =>
    expect(await namespacesOf(cloud)).not.toContain(name),
  );
}

// ── installations
// ────────────────────────────────────────────────────────────────────────────────────────────────

type Stage = { cloud: Installation; own: Project };

/** Gives the tests that follow an installation, which is audited and ended after them. */
function stageOf(settings: Record<string, string>, within: readonly string[]): () => Stage {
  let stage: Stage | null = null;
  beforeAll(async () => {
    const cloud = await install({ HOWDAH_RESTORE_HOURS: '0', ...hurried(), ...settings }, within);
    stage = { cloud, own: project(cloud.request) };
  });
  afterAll(async () => {
    if (stage === null) return;
    const prefix = await prefixOf(stage.cloud);
    try {
      await auditEnds(stage.cloud);
    } finally {
      expect(await stage.cloud.destroy()).toEqual([]);
    }
    expect(
      (await readdir('/run/netns').catch(() => [])).filter((name) => name.startsWith(prefix)),
    ).toEqual([]);
  });
  return () => {
    if (stage === null) throw new Error('it is used in tests alone');
    return stage;
  };
}

/** One whose VPCs are networks, and network namespaces put on them, which go with their test. */
export function stageNetworks() {
  const stage = stageOf({}, []);
  const nets: { remove: () => Promise<unknown> }[] = [];
  afterEach(async () => {
    for (const net of nets.splice(0)) await net.remove();
  });
  return () => ({
    ...stage(),
    plugged: async (vpc: Vpc | null, address: string | null) => {
      const net = await plug(stage().cloud, vpc, address);
      nets.push(net);
      return net;
    },
  });
}

/**
 * One whose VPCs are rules, and an address of this machine that can be inside of one; null: it has
 * none.
 */
export function stageRules() {
  const stage = stageOf(
    { HOWDAH_HOST: '0.0.0.0', HOWDAH_PUBLIC_HOST: '127.0.0.1', HOWDAH_TLS: 'off' },
    WITHOUT_NETWORKS,
  );
  let inside: PrivateAddress | null = null;
  beforeAll(async () => {
    inside = await privateAddress();
  });
  afterAll(() => inside?.remove());
  return () => ({ ...stage(), inside });
}

type PrivateAddress = { address: string; remove: () => Promise<unknown> };

/**
 * An address of this machine that a VPC can have: one that root adds for the test, or one that is
 * there.
 */
async function privateAddress(): Promise<PrivateAddress | null> {
  if (root && ability.method === 'bridge') {
    const below = (bound: number): number => Math.floor(Math.random() * bound);
    const address = `10.${100 + below(100)}.${below(256)}.9`;
    await sh('ip', ['addr', 'add', `${address}/32`, 'dev', 'lo']);
    return { address, remove: () => sh('ip', ['addr', 'del', `${address}/32`, 'dev', 'lo']) };
  }
  const found = Object.values(networkInterfaces())
    .flatMap((list) => list ?? [])
    .find(
      ({ family, address }) =>
        family === 'IPv4' && /^(10|192\.168|172\.(1[6-9]|2\d|3[01]))\./.test(address),
    );
  return found === undefined ? null : { address: found.address, remove: () => Promise.resolve() };
}
/** The network of a /24 that an address is in. */
export const around = (address: string): string => address.replace(/\d+$/, '0/24');
