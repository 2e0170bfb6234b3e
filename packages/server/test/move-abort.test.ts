/** The end of aborted moves, with real data and a region on Kubernetes that may not answer. */
import { existsSync } from 'node:fs';

import { sql } from 'kysely';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import type { FakeKubernetes } from '../test-kubernetes/probe.ts';
import { connectTo, type Installation } from './harness.ts';
import { openMetadata } from './metadata.ts';
import { NOTHING, startMoveCloud, type MoveCloud } from './move-cloud.ts';
import {
  allowRoleFunctions,
  findNextSourceToRemove,
  findNextToPurge,
  prepareMachine,
  withSuperuserSession,
} from './probe.ts';
import { withClient, type ServiceAccess } from './service-access.ts';
import { untilExpected } from './until.ts';

let cloud: Installation;
let kubernetes: FakeKubernetes;
let moves: MoveCloud;
let metadata: Awaited<ReturnType<typeof openMetadata>>;
beforeAll(async () => {
  moves = await startMoveCloud();
  ({ cloud, kubernetes } = moves);
  metadata = await openMetadata(cloud.home);
});
afterAll(async () => {
  await metadata?.close();
  expect(await cloud?.destroy()).toEqual([]);
  await kubernetes?.close();
});

// A test that fails while the cluster does not answer takes no other one along.
afterEach(() => kubernetes.refuseClusters(null));

/** A service with a copy that is being made. */
async function createMoving(name: string): Promise<ServiceAccess> {
  moves.setDefaultClass(true);
  const service = await cloud.create({ name, service_type: 'POSTGRES' });
  expect(await moves.move(service, '')).toMatchObject({ status: 202 });
  await untilExpected('the copy has a cluster', () => expect(moves.clusters()).toBe(1));
  return service;
}

async function cancel(service: ServiceAccess): Promise<void> {
  const operation = await moves.operationOf(service);
  await cloud.request('POST', `/operations/${operation?.id}/cancel`);
}

const rowOf = (id: string) =>
  metadata.db
    .selectFrom('services')
    .select(['move', 'kept', 'deleted_at'])
    .where('id', '=', id)
    .executeTakeFirst();

const moveOf = async ({ service_id: id }: ServiceAccess) => (await rowOf(id))?.move;

/** Sets a part of the state of a move, as the control plane would. */
const setMove = ({ service_id: id }: ServiceAccess, change: object) =>
  metadata.db
    .updateTable('services')
    .set({ move: sql`move || ${JSON.stringify(change)}::jsonb` })
    .where('id', '=', id)
    .execute();

test('a service goes on without the region of its copy, and its operator forgets it', async () => {
  moves.setDefaultClass(true);
  const service = await cloud.create({ name: 'stranded', service_type: 'POSTGRES' });
  expect(await moves.move(service, '')).toMatchObject({ status: 202 });
  await untilExpected('the copy has a cluster', () => expect(moves.clusters()).toBe(1));
  kubernetes.refuseClusters('nobody answers');
  const operation = await moves.operationOf(service);
  await cloud.request('POST', `/operations/${operation?.id}/cancel`);
  expect(await cloud.cli('service', 'restart', 'stranded')).toMatchObject({ code: 0 });
  // The superuser is gone, and would be rejected until the abort has ended.
  await untilExpected('the roles of the move are dropped', async () =>
    expect(await moves.tracesOf(service)).toEqual({ roles: [], rule: true }),
  );
  expect(moves.clusters()).toBe(1);
  await moves.removeRegion();
  await untilExpected('no trace of the move is left', async () =>
    expect(await moves.tracesOf(service)).toEqual(NOTHING),
  );
  kubernetes.refuseClusters(null);
  // The copy that is left in a cluster that comes back is named.
  await expect(moves.addRegion()).rejects.toThrow('of another installation or of one that is lost');
});

test('a paused service ends a move to a region that is gone when it runs again', async () => {
  await moves.addRegionAgain();
  const service = await cloud.create({ name: 'asleep', service_type: 'POSTGRES' });
  const { service_id: id } = service;
  expect(await moves.move(service, '')).toMatchObject({ status: 202 });
  await untilExpected('the copy has a cluster', () => expect(moves.clusters()).toBe(1));
  kubernetes.refuseClusters('nobody answers');
  await cloud.request('POST', `/operations/${(await moves.operationOf(service))?.id}/cancel`);
  await cloud.request('POST', `/services/${id}/stop`);
  await cloud.until(id, 'PAUSED');
  await moves.removeRegion();
  await cloud.request('POST', `/services/${id}/start`);
  await cloud.until(id, 'READY');
  await untilExpected('no trace of the move is left', async () =>
    expect(await moves.tracesOf(service)).toEqual(NOTHING),
  );
  kubernetes.refuseClusters(null);
});

test('the data of a purged service does not wait for its copy, nor do other purges', async () => {
  await moves.addRegionAgain();
  const waiting = await cloud.create({ name: 'waiting', service_type: 'POSTGRES' });
  const service = await cloud.create({ name: 'purged', service_type: 'POSTGRES' });
  const { service_id: id } = service;
  const begun = await moves.move(service, '');
  expect(begun).toEqual({ status: 202 });
  await untilExpected('the copy has a cluster', () => expect(moves.clusters()).toBe(1));
  kubernetes.refuseClusters('nobody answers');
  await cloud.request('DELETE', `/services/${waiting.service_id}?confirm=waiting`);
  await cloud.request('DELETE', `/services/${id}?confirm=purged`);
  const purge = () => cloud.request('DELETE', `/services/${id}?purge=true&confirm=purged`);
  expect((await purge()).status).toBeLessThan(300);
  const { layout } = await prepareMachine(cloud.home);
  const { data } = layout.service(id);
  await untilExpected('the data of the purged service is removed', () =>
    expect(existsSync(data)).toBe(false),
  );
  expect(moves.clusters()).toBe(1);
  const metadata = await openMetadata(cloud.home);
  const next = async () => (await findNextToPurge(metadata.db, 'local'))?.id;
  await untilExpected('the waiting service is purged next', async () =>
    expect(await next()).toBe(waiting.service_id),
  );
  await metadata.close();
  kubernetes.refuseClusters(null);
  await untilExpected('the cluster of the copy is removed', () => expect(moves.clusters()).toBe(0));
  await untilExpected('the integrity check finds nothing', async () =>
    expect(await cloud.audit()).toEqual([]),
  );
});

/** Takes the functions from the owner of a service, as the last examination of a move does. */
async function withhold(service: ServiceAccess, databases: readonly string[]): Promise<void> {
  const { layout } = await prepareMachine(cloud.home);
  const server = layout.service(service.service_id);
  for (const database of databases)
    await withSuperuserSession(
      { server, port: service.endpoint.port, name: 'howdah test', database },
      (client) => client.query(allowRoleFunctions(false)),
    );
  await setMove(service, { withheld: true });
}

async function mayMakeRoles(service: ServiceAccess, database = 'tsdb'): Promise<boolean> {
  const client = await connectTo(cloud, service, service.initial_password, { database });
  const { rows } = await client.query<{ may: boolean }>(
    `select has_function_privilege(
       'timescale_functions.create_bare_readonly_role(text, text)', 'execute') as may`,
  );
  await client.end();
  return rows[0]?.may === true;
}

test('an owner who locks databases keeps no copy, and gets the functions back later', async () => {
  const service = await createMoving('locking');
  await withClient(cloud, service, (client) => client.query('create database other template tsdb'));
  await withhold(service, ['tsdb', 'other']);
  const holder = await connectTo(cloud, service, service.initial_password);
  // Nobody can connect to it.
  await holder.query('begin; alter database other rename to another');
  await cancel(service);
  await untilExpected('the cluster of the copy is removed', () => expect(moves.clusters()).toBe(0));
  // The database that is locked keeps no other one back.
  await untilExpected('the owner may make roles again', async () =>
    expect(await mayMakeRoles(service)).toBe(true),
  );
  expect((await moves.tracesOf(service)).roles).toEqual([]);
  expect(await moveOf(service)).toMatchObject({ state: 'abort', withheld: true });
  await holder.query('rollback');
  await holder.end();
  await untilExpected('the move has ended', async () => expect(await moveOf(service)).toBe(null));
  expect(await mayMakeRoles(service, 'other')).toBe(true);
  await cloud.tidy();
});

test('the functions come back while the cluster does not answer', async () => {
  const service = await createMoving('deprived');
  await withhold(service, ['tsdb']);
  kubernetes.refuseClusters('nobody answers');
  await cancel(service);
  // A copy that goes on gives them back as well.
  await untilExpected('the move is aborted', async () =>
    expect(await moveOf(service)).toMatchObject({ state: 'abort' }),
  );
  await untilExpected('the owner may make roles again', async () =>
    expect(await mayMakeRoles(service)).toBe(true),
  );
  expect(moves.clusters()).toBe(1);
  expect(await moveOf(service)).toMatchObject({ state: 'abort' });
  kubernetes.refuseClusters(null);
  await untilExpected('the move has ended', async () => expect(await moveOf(service)).toBe(null));
  await cloud.tidy();
});

test(
  'a service that has backups and waits for its copy keeps no other purge back',
  { tags: 'slow' },
  async () => {
    const waiting = await cloud.create({ name: 'next', service_type: 'POSTGRES' });
    const former = await cloud.create({ name: 'former', service_type: 'POSTGRES' });
    const setMove = (of: string, move: string | null) =>
      metadata.db.updateTable('services').set({ move }).where('id', '=', of).execute();
    const service = await createMoving('backed-up');
    const { service_id: id } = service;
    kubernetes.refuseClusters('nobody answers');
    await cloud.request('DELETE', `/services/${id}?confirm=backed-up`);
    // As when its time for a restore from this machine is over, and a repository has its backups.
    const until = new Date(Date.now() + 86_400_000).toISOString();
    const kept = { repository: 'none', since: until, until, isRemoved: false };
    await untilExpected('the service is deleted', async () =>
      expect((await rowOf(id))?.deleted_at ?? null).not.toBe(null),
    );
    await metadata.db
      .updateTable('services')
      .set({ kept: JSON.stringify(kept), due_at: new Date() })
      .where('id', '=', id)
      .execute();
    await cloud.request('DELETE', `/services/${waiting.service_id}?confirm=next`);
    const { layout } = await prepareMachine(cloud.home);
    await untilExpected('the data of the service is removed', () =>
      expect(existsSync(layout.service(id).data)).toBe(false),
    );
    const next = async () => (await findNextToPurge(metadata.db, 'local'))?.id;
    await untilExpected('the waiting service is purged next', async () =>
      expect(await next()).toBe(waiting.service_id),
    );
    expect(moves.clusters()).toBe(1);
    // Nor the removal of former servers.
    await cloud.request('DELETE', `/services/${waiting.service_id}?purge=true&confirm=next`);
    await untilExpected('the waiting service is purged', async () =>
      expect(await rowOf(waiting.service_id)).toBe(undefined),
    );
    expect(await next()).toBe(undefined);
    const moved = { state: 'kept', from: 'local', to: 'kube', until, source: {} };
    await setMove(former.service_id, JSON.stringify(moved));
    expect(await findNextSourceToRemove(metadata.db, 'local')).toBe(former.service_id);
    await setMove(former.service_id, null);
    kubernetes.refuseClusters(null);
    await untilExpected('the backups of the service are the only thing kept', async () =>
      expect((await rowOf(id))?.kept).toMatchObject({
        isRemoved: true,
      }),
    );
    await cloud.tidy();
  },
);

test('the read replica sets of a purged service do not wait for its copy', async () => {
  const service = await createMoving('followed');
  const { service_id: id } = service;
  kubernetes.refuseClusters('nobody answers');
  await cancel(service);
  await cloud.until(id, 'READY');
  const made = await cloud.request('POST', `/services/${id}/replicaSets`, {
    name: 'readers',
    nodes: 1,
    cpu_millis: 250,
    memory_gbs: 1,
  });
  expect(made.status, JSON.stringify(made.body)).toBe(202);
  const sets = async () =>
    (await metadata.db.selectFrom('services').select('id').where('parent_id', '=', id).execute())
      .length;
  expect(await sets()).toBe(1);
  await cloud.request('DELETE', `/services/${id}?purge=true&confirm=followed`);
  await untilExpected('the set is deleted', async () => expect(await sets()).toBe(0));
  const { layout } = await prepareMachine(cloud.home);
  await untilExpected('the data of the service is removed', () =>
    expect(existsSync(layout.service(id).data)).toBe(false),
  );
  expect(moves.clusters()).toBe(1);
  kubernetes.refuseClusters(null);
  await untilExpected('the cluster of the copy is removed', () => expect(moves.clusters()).toBe(0));
  await untilExpected('the integrity check finds nothing', async () =>
    expect(await cloud.audit()).toEqual([]),
  );
});
