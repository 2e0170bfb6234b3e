/** Two projects with one of everything, keys of every kind, and calls with them. */
import { randomBytes } from 'node:crypto';
import { sql } from 'kysely';
import { expect } from 'vitest';
import {
  CALLERS,
  KEYS,
  UNAUTHENTICATED,
  type CallerKind,
  type IdKind,
  type Tags,
} from './callers.ts';
import { problemOf, type Route } from './document.ts';
import { install, type Installation } from './harness.ts';
import { openMetadata } from './metadata.ts';
import {
  certify,
  findProgram,
  insertKey,
  insertProject,
  makeSigningKey,
  newId,
  sha256,
  type NewKey,
} from './probe.ts';
import { until } from './until.ts';

const pgbouncer = await findProgram('pgbouncer');

export const haproxy = await findProgram('haproxy');

export type ProjectKind = 'own' | 'others' | 'random';

let cloud: Installation;

export let metadata: Awaited<ReturnType<typeof openMetadata>>;

export const authorization = new Map<CallerKind, string | null>();

/** Two projects that are nobody's but their own; the operator's is a third. */
export const [OURS, THEIRS] = [newId(), newId()];

/** The ids for each parameter of a path, of each project. */
export const things: Record<string, { ours: string; theirs: string }> = {};

async function newKey(projectId: string, more: Partial<NewKey> = {}): Promise<string> {
  const [publicKey, secret] = [`HD${newId()}`, randomBytes(16).toString('base64url')];
  await insertKey(metadata.db, {
    publicKey,
    secretHash: sha256(secret),
    projectId,
    name: 'test',
    role: 'admin',
    ...more,
  });
  return `${publicKey}:${secret}`;
}

export async function call(
  method: string,
  path: string,
  key: string | null,
  body?: object,
): Promise<{ status: number; text: string; headers: Headers }> {
  const response = await fetch(`${cloud.apiUrl}${path}`, {
    method,
    headers: {
      ...(key === null ? {} : { Authorization: key }),
      ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: response.status, text: await response.text(), headers: response.headers };
}

/** A running service in a project, made by its admin. */
async function newService(
  projectId: string,
  key: string,
): Promise<{ service: string; operation: string }> {
  const made = await call('POST', `/projects/${projectId}/services`, key, {
    name: 'called',
    service_type: 'POSTGRES',
  });
  expect(made.status, made.text).toBe(202);
  const service = String(Reflect.get(JSON.parse(made.text), 'service_id'));
  const read = async () =>
    Reflect.get(
      JSON.parse((await call('GET', `/projects/${projectId}/services/${service}`, key)).text),
      'status',
    );
  await until('the service is READY', async () => (await read()) === 'READY');
  return { service, operation: made.headers.get('operation-id') ?? '' };
}

async function newExporter(projectId: string, key: string): Promise<string> {
  const made = await call('POST', `/projects/${projectId}/exporters`, key, {
    name: 'an exporter',
    type: 'PROMETHEUS_METRICS',
    region_code: 'local',
    config: { username: 'prometheus', password: 'a password' },
  });
  const exporter: unknown = JSON.parse(made.text);
  return String(Reflect.get(Object(exporter), 'exporter_id'));
}

async function newAllowList(projectId: string, key: string): Promise<string> {
  const body = { description: 'a list', cidr_blocks: ['203.0.113.0/24'] };
  const made = await call('POST', `/projects/${projectId}/allow-lists`, key, body);
  const list: unknown = JSON.parse(made.text);
  return String(Reflect.get(Object(list), 'allow_list_id'));
}

/** A VPC in a project, with a peering that never holds. */
async function newVpc(projectId: string, key: string): Promise<{ vpc: string; peering: string }> {
  const idOf = (text: string): string => String(Reflect.get(JSON.parse(text), 'id'));
  const made = await call('POST', `/projects/${projectId}/vpcs`, key, {
    name: 'called',
    cidr: '10.8.0.0/16',
    region_code: 'local',
  });
  const body = { peer_account_id: 'nobody', peer_region_code: 'local', peer_vpc_id: '1' };
  const peering = await call(
    'POST',
    `/projects/${projectId}/vpcs/${idOf(made.text)}/peerings`,
    key,
    body,
  );
  expect([made.status, peering.status]).toEqual([201, 201]);
  return { vpc: idOf(made.text), peering: idOf(peering.text) };
}

/** A read replica set of it; an id of nothing where there is no HAProxy. */
async function newSet(projectId: string, service: string, key: string): Promise<string> {
  if (haproxy === null) return newId();
  const path = `/projects/${projectId}/services/${service}/replicaSets`;
  const made = await call('POST', path, key, {
    name: 'called',
    nodes: 1,
    cpu_millis: 250,
    memory_gbs: 1,
  });
  expect(made.status, made.text).toBe(202);
  await until('the set is active', async () =>
    (await call('GET', path, key)).text.includes('"status":"active"'),
  );
  return String(Reflect.get(JSON.parse(made.text), 'id'));
}

/** A webhook that was delivered to once. It is removed with its project. */
async function newWebhook(projectId: string): Promise<string> {
  const id = newId();
  await metadata.db
    .insertInto('webhooks')
    .values({
      id,
      project_id: projectId,
      url: 'https://receiver.invalid/',
      types: ['service.warnings'],
      secret: Buffer.alloc(0),
      fanned_out: '0',
      lease_until: null,
    })
    .execute();
  return id;
}

async function newCertificate(project: string, id: string): Promise<string> {
  const at = new Date().toISOString();
  const service = { id, name: 'certified', project_id: project, region_code: 'local' };
  const { certificate, signature } = certify(makeSigningKey(), newId(), service, {
    backup: { place: 'snapshot', repository: null, label: 'newest', taken: at },
    postgresql_version: null,
    began: at,
    ended: at,
    recovery_point: null,
    rpo_seconds: null,
    rto_seconds: null,
    contents: null,
    pages: null,
    checks: [],
  });
  await metadata.db
    .insertInto('certificates')
    .values({
      id: certificate.certificate_id,
      service_id: id,
      issued: at,
      document: JSON.stringify({ certificate, signature }),
    })
    .execute();
  return certificate.certificate_id;
}

async function newDestination(projectId: string, key: string): Promise<string> {
  const made = await call('POST', `/projects/${projectId}/alerts/destinations`, key, {
    name: 'a destination',
    type: 'slack',
    config: { url: 'https://receiver.invalid/' },
  });
  const destination: unknown = JSON.parse(made.text);
  return String(Reflect.get(Object(destination), 'id'));
}

async function newDelivery(webhookId: string): Promise<string> {
  const { id } = await metadata.db
    .insertInto('deliveries')
    .values({
      webhook_id: webhookId,
      message_id: 'event_0',
      type: 'service.warnings',
      body: '{}',
      status: 'delivered',
      response_status: 200,
      error: null,
      finished: new Date(),
    })
    .returning('id')
    .executeTakeFirstOrThrow();
  return id;
}

/** The status of the answer to a good call where a program is not installed. */
function withWhatIsHere({ operationId, names }: Route, expected: number): number {
  if (operationId === 'createReplicaSet' && haproxy === null) return 422;
  if (names.includes('replica_set_id') && haproxy === null) return 404;
  return operationId.startsWith('enablePooler') && pgbouncer === null ? 422 : expected;
}

const MISSHAPEN = ['%00', '..%2f..%2fetc', 'x'.repeat(200), '%F0%9F%90%98', "'--"];

/** The path of a call. The caller's own project is `ours` for all but those of other projects. */
function pathFor(
  route: Route,
  caller: CallerKind,
  project: ProjectKind,
  ids: IdKind,
  turn: number,
): string {
  const home = caller === 'otherAdmin' ? THEIRS : caller === 'operator' ? cloud.projectId : OURS;
  // The operator's own project has no service; a foreign one does.
  const named =
    project === 'random' ? newId() : project === 'own' ? home : home === OURS ? THEIRS : OURS;
  return route.path.replaceAll(/\{([a-z_]+)\}/g, (_, name: string) => {
    if (name === 'project_id') return named;
    const thing = things[name];
    if (thing === undefined) throw new Error(`the test has no ${name} to call with`);
    const mine = named === THEIRS ? thing.theirs : thing.ours;
    if (ids === 'own') return mine;
    if (ids === 'others') return named === THEIRS ? thing.ours : thing.theirs;
    if (ids === 'random') return newId();
    if (ids === 'misshapen') return MISSHAPEN[turn % MISSHAPEN.length] ?? 'x';
    const another = things[name === 'operation_id' ? 'service_id' : 'operation_id'];
    return (named === THEIRS ? another?.theirs : another?.ours) ?? '';
  });
}

/** Everything that a call could have changed. */
export async function everything(): Promise<unknown> {
  const { rows } = await sql`
    select (select json_agg(s order by id)
            from (select id, name, environment, power, deleting, pooler, cpu_millis,
                         replica_count, vpc_id, allow_list_id, metric_exporter_id
                  from services) s) as services,
           (select json_agg(o order by id) from (select id, kind, requested_by from operations) o)
             as operations,
           (select json_agg(k order by public_key)
             from (select public_key, name, role, revoked_at from api_keys) k) as keys,
           (select json_agg(p order by id) from projects p) as projects,
           (select json_agg(v order by id) from (select id, name, deleting from vpcs) v) as vpcs,
           (select json_agg(e order by id)
            from (select id, name, config from exporters) e) as exporters,
           (select json_agg(l order by id)
            from (select id, description, cidr_blocks from allow_lists) l) as allow_lists,
           (select json_agg(p order by id) from (select id, status from peerings) p) as peerings,
           (select json_agg(w order by id) from (select id, url from webhooks) w) as webhooks,
           -- Warnings of services begin and end by themselves.
           (select json_agg(d order by id)
            from (select id, status, attempts from deliveries
                  where type <> 'service.warnings' or message_id = 'event_0') d) as deliveries,
           (select json_agg(a order by id)
            from (select id, name, config from alert_destinations) a) as destinations,
           (select json_agg(r) from alert_rules r) as alert_rules,
           (select json_agg(t order by public_key)
             from (select public_key, count(*)::int from console_tokens t where exists
              (select from api_keys k where k.public_key = t.public_key and k.dry_run_only)
                group by public_key) t) as tokens,
           (select count(*)::int from kept_answers) as kept`.execute(metadata.db);
  return rows[0];
}

export let calls = 0;

/** Makes a call by a caller. @returns what is wrong with its answer; null: nothing */
export async function problemOfCall(
  route: Route,
  caller: CallerKind,
  project: ProjectKind,
  ids: IdKind,
  expected: number,
  when = '',
): Promise<string | null> {
  const row = CALLERS[route.operationId];
  const turn = calls++;
  // A refused call is made for real. An allowed one is a dry run, unless the key can only make dry
  // runs.
  const asked = route.changes && expected < 300 && caller !== 'dryRunOnly' ? '?dry_run=true' : '';
  const ending = route.ending === '' ? '' : `?${route.ending}`;
  const path = `${pathFor(route, caller, project, ids, turn)}${ending}`;
  const answer = await call(
    route.method,
    `${path}${asked}`,
    authorization.get(caller) ?? null,
    row?.body,
  );
  const accepted = expected === 200 ? withWhatIsHere(route, expected) : expected;
  const what =
    `${route.method} ${path}${asked} (${route.operationId}) by ${caller}, ` +
    `${project} project, ${ids} ids${when}`;
  if (answer.status !== accepted)
    return `${what}: ${answer.status}, expected ${accepted}: ${answer.text.slice(0, 200)}`;
  const problem = problemOf(route, answer.status, answer.text);
  if (problem !== null) return `${what}: ${problem}`;
  return route.changes && answer.status === 200 && answer.headers.get('dry-run') !== 'true'
    ? `${what}: no dry run`
    : null;
}

/** Tags our service and its set. */
export async function tag({ service, set }: Tags): Promise<void> {
  const admin = authorization.get('admin') ?? '';
  const path = `/projects/${OURS}/services/${things['service_id']?.ours}`;
  const tagged = [[`${path}/setEnvironment`, service] as const];
  if (haproxy !== null)
    tagged.push([`${path}/replicaSets/${things['replica_set_id']?.ours}/setEnvironment`, set]);
  for (const [where, environment] of tagged)
    expect((await call('POST', where, admin, { environment })).status).toBe(200);
}

export async function setUp(): Promise<void> {
  cloud = await install({
    HOWDAH_FAILED_KEYS_PER_MINUTE: '1000000',
    HOWDAH_SIMULATED_REGION: 'yes',
  });
  metadata = await openMetadata(cloud.home);
  await insertProject(metadata.db, { id: OURS, name: 'ours' });
  await insertProject(metadata.db, { id: THEIRS, name: 'theirs' });
  const bearer = async (key: Promise<string>): Promise<string> => `Bearer ${await key}`;
  const admin = await newKey(OURS);
  const [publicKey = ''] = admin.split(':');
  const revoked = await newKey(OURS);
  await metadata.db
    .updateTable('api_keys')
    .set({ revoked_at: new Date() })
    .where('public_key', '=', revoked.split(':')[0] ?? '')
    .execute();
  const callers: Record<CallerKind, string | null> = {
    none: null,
    malformed: 'Bearer malformed',
    wrong: `Bearer ${publicKey}:wrong`,
    revoked: `Bearer ${revoked}`,
    expired: await bearer(newKey(OURS, { expiresAt: new Date(Date.now() - 1000) })),
    admin: `Bearer ${admin}`,
    developer: await bearer(newKey(OURS, { role: 'developer' })),
    viewer: await bearer(newKey(OURS, { role: 'viewer' })),
    forkOnly: await bearer(newKey(OURS, { role: 'developer', forkOnly: true })),
    dryRunOnly: await bearer(newKey(OURS, { dryRunOnly: true })),
    otherAdmin: await bearer(newKey(THEIRS)),
    operator: `Bearer ${cloud.key}`,
  };
  for (const kind of [...UNAUTHENTICATED, ...KEYS]) authorization.set(kind, callers[kind]);
  const ours = await newService(OURS, callers.admin ?? '');
  const theirs = await newService(THEIRS, callers.otherAdmin ?? '');
  things['replica_set_id'] = {
    ours: await newSet(OURS, ours.service, callers.admin ?? ''),
    theirs: await newSet(THEIRS, theirs.service, callers.otherAdmin ?? ''),
  };
  things['service_id'] = { ours: ours.service, theirs: theirs.service };
  things['operation_id'] = { ours: ours.operation, theirs: theirs.operation };
  things['certificate_id'] = {
    ours: await newCertificate(OURS, ours.service),
    theirs: await newCertificate(THEIRS, theirs.service),
  };
  const [ourVpc, theirVpc] = [
    await newVpc(OURS, callers.admin ?? ''),
    await newVpc(THEIRS, callers.otherAdmin ?? ''),
  ];
  // Every service can have it.
  things['extension_name'] = { ours: 'pg_trgm', theirs: 'pg_trgm' };
  things['vpc_id'] = { ours: ourVpc.vpc, theirs: theirVpc.vpc };
  things['peering_id'] = { ours: ourVpc.peering, theirs: theirVpc.peering };
  things['allow_list_id'] = {
    ours: await newAllowList(OURS, callers.admin ?? ''),
    theirs: await newAllowList(THEIRS, callers.otherAdmin ?? ''),
  };
  things['exporter_id'] = {
    ours: await newExporter(OURS, callers.admin ?? ''),
    theirs: await newExporter(THEIRS, callers.otherAdmin ?? ''),
  };
  // The operator's; its calls are made in api-shapes.test.ts.
  things['repository_id'] = { ours: newId(), theirs: newId() };
  things['lease_id'] = { ours: newId(), theirs: newId() };
  things['region_code'] = { ours: 'kube', theirs: 'kube' };
  things['webhook_id'] = { ours: await newWebhook(OURS), theirs: await newWebhook(THEIRS) };
  things['delivery_id'] = {
    ours: await newDelivery(things['webhook_id'].ours),
    theirs: await newDelivery(things['webhook_id'].theirs),
  };
  things['destination_id'] = {
    ours: await newDestination(OURS, callers.admin ?? ''),
    theirs: await newDestination(THEIRS, callers.otherAdmin ?? ''),
  };
  things['public_key'] = {
    ours: (await newKey(OURS)).split(':')[0] ?? '',
    theirs: (await newKey(THEIRS)).split(':')[0] ?? '',
  };
}

export async function tearDown(): Promise<void> {
  await metadata?.close();
  expect(await cloud?.destroy()).toEqual([]);
}
