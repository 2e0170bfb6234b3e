/** An installation with two services, and statements in them as their owner. */
import { Client, type ClientConfig } from 'pg';
import { expect } from 'vitest';
import { connectTo, type Installation } from './harness.ts';
import { share } from './shared.ts';
import type { Service } from './harness-caller.ts';

type ServiceAccess = Service & { initial_password: string };

export let cloud: Installation;

export let service: ServiceAccess;

export let twin: ServiceAccess;

export let admin: Client;

export const rows = async (client: Client, text: string, values: unknown[] = []) =>
  (await client.query(text, values)).rows;

export const value = async (client: Client, text: string): Promise<unknown> =>
  Object.values((await client.query(text)).rows[0] ?? {})[0];

/** Connects with settings of the test's own. @returns null, or the code or words of the refusal */
export async function refusalOf(
  config: ClientConfig & { replication?: string },
): Promise<string | null> {
  const client = new Client({
    host: service.endpoint.host,
    port: service.endpoint.port,
    user: 'tsdbadmin',
    database: 'tsdb',
    ...config,
  });
  client.on('error', () => undefined);
  try {
    await client.connect();
    return null;
  } catch (error) {
    return error instanceof Error
      ? `${'code' in error ? String(error.code) : ''} ${error.message}`
      : String(error);
  } finally {
    await client.end().catch(() => undefined);
  }
}

export const logs = async (query: string) => {
  const { body } = await cloud.request('GET', `/services/${service.service_id}/logs?${query}`);
  const entries: unknown = Reflect.get(Object(body), 'entries');
  return Array.isArray(entries) ? entries : [];
};

type Page = {
  entries: { message: string }[];
  logs: string[];
  last_cursor?: string;
  lastCursor?: string;
};

const isPage = (candidate: unknown): candidate is Page =>
  typeof candidate === 'object' &&
  candidate !== null &&
  'entries' in candidate &&
  'logs' in candidate;

export function pageOf(body: unknown): Page {
  if (!isPage(body)) throw new Error(`no page of logs: ${JSON.stringify(body)}`);
  return body;
}

export async function setUp(): Promise<void> {
  cloud = await share();
  [service, twin] = await Promise.all([
    cloud.create({ name: 'one', service_type: 'POSTGRES' }),
    cloud.create({ name: 'two', service_type: 'POSTGRES', cpu_millis: '1000' }),
  ]);
  admin = await connectTo(cloud, service, service.initial_password);
}

export async function tearDown(): Promise<void> {
  await admin?.end();
  expect(await cloud?.destroy()).toEqual([]);
}
