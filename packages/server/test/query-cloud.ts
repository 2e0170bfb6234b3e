/** An installation with a service, and statements that POST …/query runs. */
import { HowdahError, type Schemas } from '@howdah/client';
import { Client } from 'pg';
import { expect } from 'vitest';
import { connectTo, type Installation } from './harness.ts';
import { share } from './shared.ts';
import type { Service } from './harness-caller.ts';

export let cloud: Installation;

export let service: Service & { initial_password: string };

export let admin: Client;

type Body = Schemas['Query'];

export async function query(
  sql: string,
  more: Partial<Body> = {},
  id = service.service_id,
): Promise<Schemas['QueryResult']> {
  const { data } = await cloud.client.POST('/projects/{project_id}/services/{service_id}/query', {
    params: { path: { project_id: cloud.projectId, service_id: id } },
    body: { sql, ...more },
  });
  if (data === undefined) throw new Error('answered without a body');
  return data;
}

/** The refusal of a statement. */
export async function refusal(sql: string, more: Partial<Body> = {}): Promise<string> {
  const answer = await query(sql, more).catch((error: unknown) => error);
  if (!(answer instanceof HowdahError))
    throw new Error(`${sql} was answered: ${JSON.stringify(answer)}`);
  expect(answer.status, `${sql}: ${answer.message}`).toBe(400);
  return answer.message;
}

export async function setUp(): Promise<void> {
  cloud = await share();
  const made = await cloud.create({ name: 'asked', service_type: 'POSTGRES' });
  service = made;
  admin = await connectTo(cloud, made, made.initial_password);
  for (const statement of [
    'create table kept (id int primary key, note text)',
    "insert into kept values (1, 'one'), (2, null)",
    'create sequence counter',
    `create function writes() returns int language plpgsql security definer as $$
       begin insert into kept values (99, 'written'); return 1; end $$`,
    `create function turns() returns int language plpgsql security definer as $$
       begin set transaction read write; insert into kept values (98, 'x'); return 1; end $$`,
    `create function is_set() returns int
       language sql security definer set default_transaction_read_only = off as $$
       insert into kept values (97, 'x') returning id $$`,
    `create function catches() returns int language plpgsql as $$
       begin perform pg_sleep(30); return 1;
       exception when query_canceled then perform pg_sleep(300); return 2; end $$`,
    `create procedure commits() language plpgsql as $$
       begin commit; insert into kept values (96, 'x'); end $$`,
    'create table hidden (secret text)',
    "insert into hidden values ('seen')",
    'alter table hidden enable row level security',
  ])
    await admin.query(statement);
}

export async function tearDown(): Promise<void> {
  await admin?.end();
  expect(await cloud?.destroy()).toEqual([]);
}
