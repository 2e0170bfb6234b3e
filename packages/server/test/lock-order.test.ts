/**
 * Statements that lock many services take them in the order of all others: a service, then its read
 * replica sets. In another order, one of two that meet would end with a deadlock.
 */
import { sql } from 'kysely';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Installation } from './harness.ts';
import { share } from './shared.ts';
import { openMetadata } from './metadata.ts';
import {
  type Db,
  makeAllDue,
  makeAllServicesDue,
  makeServicesDue,
  refreshAllowedNetworks,
  refreshAllowLists,
} from './probe.ts';
import { untilExpected } from './until.ts';

/** A region that no control plane serves: only this test locks its services. */
const REGION = 'locks';
const [SERVICE, SET, LIST] = ['lockparent', 'lockedsets', 'lockedlist'];
const VPC = '900';
const OTHER = { allowed_networks: ['10.8.0.0/16'] };
const IN_VPC = { ...OTHER, vpc_id: VPC, allow_list_id: null };
const WITH_LIST = { ...OTHER, vpc_id: null, allow_list_id: LIST };

let cloud: Installation;
let metadata: Awaited<ReturnType<typeof openMetadata>>;

beforeAll(async () => {
  cloud = await share();
  metadata = await openMetadata(cloud.home);
  const { service_id: id } = await cloud.create({ name: 'model', service_type: 'POSTGRES' });
  await metadata.db.transaction().execute(async (tx) => {
    await sql`set local session_replication_role = replica`.execute(tx);
    const copy = (facts: object) =>
      sql`insert into services select (jsonb_populate_record(s, ${JSON.stringify(facts)})).*
        from services s where id = ${id}`.execute(tx);
    const facts = { region_code: REGION, lease_until: '2100-01-01', ...IN_VPC };
    // The set comes first where the server finds rows.
    await copy({ ...facts, id: SET, name: 'set', parent_id: SERVICE, port: 1 });
    await copy({ ...facts, id: SERVICE, name: 'service', port: 2 });
    await sql`insert into vpcs (id, project_id, region_code, name, cidr) overriding system value
      values (${VPC}, ${cloud.projectId}, ${REGION}, 'locks', '10.9.0.0/16')`.execute(tx);
    await sql`insert into allow_lists (id, project_id, description, cidr_blocks)
      values (${LIST}, ${cloud.projectId}, '', '{10.9.0.0/16}')`.execute(tx);
  });
});
afterAll(async () => {
  await metadata.db.transaction().execute(async (tx) => {
    await sql`set local session_replication_role = replica`.execute(tx);
    await sql`delete from services where region_code = ${REGION}`.execute(tx);
    await sql`delete from vpcs where id = ${VPC}`.execute(tx);
    await sql`delete from allow_lists where id = ${LIST}`.execute(tx);
  });
  await metadata.close();
  expect(await cloud.destroy()).toEqual([]);
});

const change = async (columns: object): Promise<void> => {
  await metadata.db.transaction().execute(async (tx) => {
    await sql`set local session_replication_role = replica`.execute(tx);
    await tx.updateTable('services').set(columns).where('id', '=', SET).execute();
    await tx.updateTable('services').set(columns).where('id', '=', SERVICE).execute();
  });
};

const STATEMENTS: [name: string, columns: object, run: (db: Db) => Promise<unknown>][] = [
  ['makeAllDue', IN_VPC, (db) => makeAllDue(db, REGION)],
  ['makeAllServicesDue', IN_VPC, makeAllServicesDue],
  ['makeServicesDue', IN_VPC, (db) => makeServicesDue(db, [VPC])],
  ['refreshAllowedNetworks', IN_VPC, (db) => refreshAllowedNetworks(db, REGION)],
  ['refreshAllowLists', WITH_LIST, (db) => refreshAllowLists(db, REGION)],
];

/** Whether a statement of this test waits for a row. */
async function isWaiting(): Promise<boolean> {
  const { rows } = await sql`select from pg_stat_activity
    where application_name = 'howdah test' and wait_event_type = 'Lock'`.execute(metadata.db);
  return rows.length > 0;
}

test.each(STATEMENTS)('%s locks a service before its sets', async (_, columns, run) => {
  await change(columns);
  const dueAt = sql<Date>`select due_at from services where region_code = ${REGION}`;
  const before = (await dueAt.execute(metadata.db)).rows;
  const locking: Promise<unknown>[] = [];
  await metadata.db.transaction().execute(async (tx) => {
    await sql`select from services where id = ${SERVICE} for update`.execute(tx);
    locking.push(run(metadata.db));
    await untilExpected('the statement waits for the lock of the service', async () =>
      expect(await isWaiting()).toBe(true),
    );
    // This statement would fail if the other one had locked the set.
    await sql`select from services where id = ${SET} for update nowait`.execute(tx);
  });
  await Promise.all(locking);
  const after = (await dueAt.execute(metadata.db)).rows;
  expect(after).toHaveLength(2);
  expect(after).not.toEqual(before);
});
