/**
 * What changes when the control plane starts again with other settings, or keeps its metadata
 * elsewhere.
 */
import { appendFile, readdir, readFile, writeFile } from 'node:fs/promises';
import { once } from 'node:events';
import { connect as connectPlainly, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { sql } from 'kysely';
import { expect, test } from 'vitest';
import { connectTo, install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { openMetadata, SINCE_0057 } from './metadata.ts';
import { createLayout, findProgram } from './probe.ts';
import { until, untilExpected } from './until.ts';

test(
  'another public host and other settings reach a running server, no session ends',
  { tags: 'slow' },
  async () => {
    const cloud = await install();
    const service = await cloud.create({ name: 'stays', service_type: 'POSTGRES' });
    const client = await connectTo(cloud, service, service.initial_password);
    const { config } = createLayout(join(cloud.home, 'data')).service(service.service_id);
    await cloud.stop('SIGTERM');
    // As if an older release had written it.
    await appendFile(join(config, 'postgresql.conf'), "log_min_duration_statement = '1s'\n");
    cloud.env['HOWDAH_PUBLIC_HOST'] = 'db.example.test';
    await cloud.up();
    await untilExpected('the service has the new setting', async () =>
      expect((await client.query('show log_min_duration_statement')).rows[0]).toEqual({
        log_min_duration_statement: '10s',
      }),
    );
    // The endpoint is the one that was promised; the certificate covers the new name as well, for
    // new sessions.
    expect((await cloud.get(service.service_id)).endpoint).toEqual(service.endpoint);
    await untilExpected('the certificate has the new name', async () =>
      expect(await certificateNames(service.endpoint.port)).toContain('DNS:db.example.test'),
    );
    await client.end();
    expect(await cloud.destroy()).toEqual([]);
  },
);

test('a home with the names of an older release starts, and shows the new names', async () => {
  const cloud = await install({ HOWDAH_SPARES: '0', HOWDAH_WEBHOOK_NETWORKS: '127.0.0.1' });
  const service = await cloud.create({ name: 'older', service_type: 'POSTGRES' });
  const backups = async () =>
    (await cloud.request('GET', `/services/${service.service_id}/backupStatus`)).body;
  const initial = { snapshots: [{ kind: 'initial' }] };
  await untilExpected('the initial snapshot is there', async () =>
    expect(await backups()).toMatchObject(initial),
  );
  const { data: webhook } = await cloud.client.POST('/projects/{project_id}/webhooks', {
    params: { path: { project_id: cloud.projectId } },
    body: { url: 'http://127.0.0.1:9/' },
  });
  const webhookId = webhook?.id ?? '';
  const deliveries = `/webhooks/${webhookId}/deliveries`;
  // As the older release left it: columns and statuses, the marker of the instance, and the
  // snapshot.
  const metadata = await openMetadata(cloud.home);
  await sql`insert into deliveries (webhook_id, message_id, type, body, status, finished)
    values (${webhookId}, 'older', 'service.status', '{}', 'failed', now())`.execute(metadata.db);
  await cloud.stop('SIGKILL');
  await takeMigrationsBack(metadata);
  const paths = createLayout(join(cloud.home, 'data')).service(service.service_id);
  await rewrite(paths.marker, '"provisioned":', '"born":');
  for (const id of await readdir(paths.snapshots))
    await rewrite(join(paths.snapshots, id, 'snapshot.json'), '"initial"', '"birth"');
  await cloud.up();
  expect(await cloud.get(service.service_id)).toMatchObject({
    status: 'READY',
    pg_version: service.pg_version,
  });
  expect(await backups()).toMatchObject(initial);
  expect((await cloud.request('GET', `${deliveries}?status=failed`)).body).toMatchObject([
    { message_id: 'older', status: 'failed' },
  ]);
  await (await connectTo(cloud, service, service.initial_password)).end();
  expect(await cloud.destroy()).toEqual([]);
});

test.runIf((await findProgram('haproxy')) !== null)(
  'replicas of an older release keep their servers, ports and primary',
  { tags: 'slow' },
  async () => {
    const cloud = await install({ HOWDAH_SPARES: '0' });
    const service = await cloud.create({
      name: 'older',
      service_type: 'POSTGRES',
      replica_count: 1,
    });
    const { service_id: id } = service;
    await cloud.until(id, 'READY');
    expect((await cloud.request('POST', `/services/${id}/switchover`)).status).toBe(202);
    await cloud.until(id, 'READY');
    const set = { name: 'reads', cpu_millis: 250, memory_gbs: 1, nodes: 2 };
    expect((await cloud.request('POST', `/services/${id}/replicaSets`, set)).status).toBe(202);
    const sets = async () => (await cloud.get(id)).read_replica_sets;
    await untilExpected('the set is active', async () =>
      expect(await sets()).toMatchObject([{ status: 'active' }]),
    );
    const metadata = await openMetadata(cloud.home);
    const servers = metadata.db
      .selectFrom('server_ports')
      .select(['service_id', 'server', 'port'])
      .orderBy('port');
    const before = await servers.execute();
    expect(before).toHaveLength(4);
    await cloud.stop('SIGKILL');
    await takeMigrationsBack(metadata);
    await cloud.up();
    const since = await openMetadata(cloud.home);
    expect(await since.db.selectFrom('recorded_primaries').selectAll().execute()).toEqual([
      { service_id: id, server: 1 },
    ]);
    const after = since.db.selectFrom('server_ports').select(['service_id', 'server', 'port']);
    expect(await after.orderBy('port').execute()).toEqual(before);
    await since.close();
    await cloud.until(id, 'READY');
    await untilExpected('the set is active with two nodes', async () =>
      expect(await sets()).toMatchObject([{ status: 'active', nodes: 2 }]),
    );
    const client = await connectTo(cloud, service, service.initial_password);
    await client.query('create table written (n int)');
    await client.end();
    expect(await cloud.audit()).toEqual([]);
    expect(await cloud.destroy()).toEqual([]);
  },
);

/** Takes the migrations back that renamed or moved something, and closes the connection. */
async function takeMigrationsBack({
  db,
  close,
}: Pick<Awaited<ReturnType<typeof openMetadata>>, 'db' | 'close'>): Promise<void> {
  for (const statement of [...OLDER_SERVERS, ...OLDER_NAMES]) await sql.raw(statement).execute(db);
  await close();
}

const SERVERS_OF = 'from server_ports p where p.service_id = s.id';
/** Ports of servers and the primary, in the row of their service. */
const OLDER_SERVERS = [
  'drop view promised_ports, project_usage',
  // These views are those of an older release only as far as the migration replaces them.
  'create view promised_ports as select 1 as one',
  'create view project_usage as select 1 as one',
  `alter table services
    add column members jsonb not null default '[]',
    add column primary_member integer not null default 0,
    add column leave_member integer`,
  `update services s set
    members = coalesce(
      (select jsonb_agg(jsonb_build_object('n', server, 'port', port)) ${SERVERS_OF}), '[]'),
    primary_member = coalesce(
      (select server from recorded_primaries p where p.service_id = s.id), 0)`,
  'drop table server_ports, recorded_primaries, simulated_documents',
  `alter table services drop column nodes, drop column has_gateway, drop column switchover,
    drop column purpose`,
  ...SINCE_0057,
];

const OLDER_NAMES = [
  'alter table deliveries drop constraint deliveries_status_check',
  `update deliveries set status = 'dead' where status = 'failed'`,
  `alter table deliveries add constraint deliveries_status_check
    check (status in ('pending', 'delivered', 'dead'))`,
  'alter table services drop column metric_exporter_id, drop column exported_until',
  'drop table exporters, kept_logs, login_requests',
  'drop trigger service_allow_list_changed on services',
  `alter table services drop constraint services_allowed_networks_check,
    drop column allow_list_id`,
  'drop table allow_lists',
  'drop function allow_list_changed, service_allow_list_changed',
  'alter table services rename column allowed_networks to admitted',
  `alter table services
    drop column preload, drop column creates_extension, drop column drops_extension`,
  `alter table services add constraint services_check4
    check ((vpc_id is null) = (admitted is null))`,
  'alter table services drop column region_alias',
  'alter table services drop column pg_version',
  'alter table services drop column restarts',
  'alter table services drop column recovery, drop column provisioned',
  'drop index operation_under_way, operation_beside',
  `create unique index operation_under_way on operations (service_id)
    where finished is null and kind <> 'verifyBackup'`,
  `create unique index verification_under_way on operations (service_id)
    where finished is null and kind = 'verifyBackup'`,
  'alter table services drop column backup_retention_days',
  'alter table projects drop column max_backup_retention_days',
  'alter table services drop column upgrade, drop column upgraded, drop column kept',
  'alter table services add unique (region_code, port), add unique (region_code, pooler_port)',
  'alter table operations drop column request',
  'drop table repositories, former_repositories',
  'alter table services drop column pooler_host',
  'drop table kubernetes_regions',
  'alter table vpcs drop column region_alias',
  'alter table services drop column move, drop column risk_reported_of',
  'alter table operations drop column not_carried',
  `delete from kysely_migration where name >= '0016'`,
];

/** Replaces a text that a file must contain. */
async function rewrite(path: string, from: string, to: string): Promise<void> {
  const text = await readFile(path, 'utf8');
  expect(text).toContain(from);
  await writeFile(path, text.replace(from, to));
}

/** @returns the first answer that is not 503 */
const stopPatiently = (
  cloud: Installation,
  { service_id: id }: Pick<Service, 'service_id'>,
): Promise<number> =>
  until('a stop is answered otherwise than 503', async () => {
    const { status } = await cloud.request('POST', `/services/${id}/stop`);
    return status !== 503 && status;
  });

// At the same time as the next test, which waits for deadlines of connections.
test.concurrent(
  'the metadata database can stand in a database that is named, even one of a Howdah',
  { tags: 'slow' },
  async ({ expect }) => {
    const below = await install();
    const metadata = await below.create({ name: 'metadata', service_type: 'POSTGRES' });
    const { host, port } = metadata.endpoint;
    const ca = join(below.home, 'ca', 'ca.pem');
    const url =
      `postgres://tsdbadmin:${metadata.initial_password}@${host}:${port}/tsdb` +
      `?sslmode=verify-full&sslrootcert=${ca}`;
    const above = await install({ HOWDAH_DATABASE_URL: url });
    const service = await above.create({ name: 'above', service_type: 'POSTGRES' });
    await above.stop('SIGKILL');
    await above.up();
    expect((await above.get(service.service_id)).status).toBe('READY');
    await (await connectTo(above, service, service.initial_password)).end();
    // The database moves to one of our own, and back.
    for (const [place, words] of [
      ['own', 'has a copy'],
      [url.replace('/tsdb', '/other'), 'has a copy'],
      [url, 'held the installation already'],
    ] as const) {
      if (place.includes('/other')) {
        const client = await connectTo(below, metadata, metadata.initial_password);
        await client.query('create database other');
        await client.end();
      }
      await above.stop('SIGTERM');
      delete above.env['HOWDAH_DATABASE_URL'];
      expect((await above.cli('metadata-database', place)).stdout).toContain(words);
      await above.up();
      expect((await above.get(service.service_id)).status).toBe('READY');
    }
    // The metadata database's own server restarts under it: requests fail for a moment and then
    // work again.
    await below.request('POST', `/services/${metadata.service_id}/resize`, { cpu_millis: 1000 });
    await below.until(metadata.service_id, 'READY');
    expect(await stopPatiently(above, service)).toBe(202);
    await above.until(service.service_id, 'PAUSED');
    expect(await above.destroy()).toEqual([]);
    expect(await below.destroy()).toEqual([]);
  },
);

test.concurrent(
  'lost connections to the metadata database are recreated, and hold nothing',
  { tags: 'slow' },
  async ({ expect }) => {
    const below = await install();
    const metadata = await below.create({ name: 'metadata', service_type: 'POSTGRES' });
    const between = await standBetween(metadata.endpoint.port);
    const above = await install({
      HOWDAH_DATABASE_URL:
        `postgres://tsdbadmin:${metadata.initial_password}@127.0.0.1:${between.port}/tsdb` +
        '?sslmode=no-verify',
    });
    const service = await above.create({ name: 'above', service_type: 'POSTGRES' });
    const holder = await connectTo(below, metadata, metadata.initial_password);
    await holder.query('begin; select from services for update');
    const stopping = above.request('POST', `/services/${service.service_id}/stop`);
    await untilExpected('the new control plane waits for the lock', async () =>
      expect((await holder.query(WAITING)).rowCount).toBeGreaterThan(0),
    );
    between.drop();
    // The transaction gets its lock, and nobody is told.
    await holder.query('commit');
    expect((await stopping).status).toBe(503);
    expect(await stopPatiently(above, service)).toBe(202);
    await above.until(service.service_id, 'PAUSED');
    // Nor does the lock of the one control plane stay with a session that is gone.
    await untilExpected('the lock is taken again', async () =>
      expect((await holder.query(LOCKED_ANEW)).rowCount).toBe(1),
    );
    await holder.end();
    expect(await above.destroy()).toEqual([]);
    await between.close();
    expect(await below.destroy()).toEqual([]);
  },
);

const WAITING = "select from pg_stat_activity where wait_event_type = 'Lock'";
const LOCKED_ANEW = `
  select from pg_locks join pg_stat_activity control using (pid)
  where locktype = 'advisory' and granted
    and control.backend_start > (select backend_start from pg_stat_activity
      where pid = pg_backend_pid())`;

/**
 * A way to a port on this machine on which connections can be dropped: both ends stay open, and
 * nothing passes any more.
 */
async function standBetween(port: number) {
  const pairs = new Set<readonly [Socket, Socket]>();
  const server = createServer((client) => {
    const pair = [client, connectPlainly(port, '127.0.0.1')] as const;
    pairs.add(pair);
    pair.forEach((socket, index) => {
      socket.on('error', () => undefined);
      socket.pipe(pair[1 - index] ?? socket);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (typeof address !== 'object' || address === null) throw new Error('no address');
  return {
    port: address.port,
    drop: (): void => {
      for (const socket of [...pairs].flat()) socket.unpipe().resume().removeAllListeners('end');
    },
    close: async (): Promise<void> => {
      for (const socket of [...pairs].flat()) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

/** The names in the certificate that a server shows a client that asks for TLS. */
async function certificateNames(port: number): Promise<string> {
  // PostgreSQL 17 and newer take TLS from the first byte, given this protocol name.
  return new Promise((resolve, reject) => {
    const socket = connect(
      { host: '127.0.0.1', port, rejectUnauthorized: false, ALPNProtocols: ['postgresql'] },
      () => {
        resolve(socket.getPeerCertificate().subjectaltname ?? '');
        socket.destroy();
      },
    );
    socket.on('error', reject);
  });
}
