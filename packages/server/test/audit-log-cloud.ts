/** An installation with a service, and the entries of its audit log. */
import type { Schemas } from '@howdah/client';
import { expect } from 'vitest';
import { install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { openMetadata } from './metadata.ts';
import { until } from './until.ts';

export type Entry = Schemas['AuditEntry'];

export let cloud: Installation;

export let metadata: Awaited<ReturnType<typeof openMetadata>>;

export let service: Service;

export async function entries(query = ''): Promise<Entry[]> {
  const { body } = await cloud.request('GET', `/audit${query}`);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a schema is checked elsewhere
  return body as Entry[];
}

/** The entry of a request, once it is there: those of refusals are written in a moment. */
export async function entryOf(headers: Headers): Promise<Entry> {
  const id = headers.get('X-Request-Id');
  return until(`the audit log has an entry of request ${id}`, async () =>
    (await entries()).find((entry) => entry.request_id === id),
  );
}

export const publicKey = () => cloud.key.split(':')[0] ?? '';

export async function setUp(): Promise<void> {
  cloud = await install();
  metadata = await openMetadata(cloud.home);
  service = await cloud.create({ name: 'audited', service_type: 'POSTGRES' });
}

export async function tearDown(): Promise<void> {
  await metadata.close();
  expect(await cloud.destroy()).toEqual([]);
}
