/** An installation that may deliver to this machine, and receivers of webhooks. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type Schemas } from '@howdah/client';
import { sql } from 'kysely';
import { expect } from 'vitest';
import { install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { openMetadata } from './metadata.ts';
import { newId, sha256 } from './probe.ts';

type Delivery = Schemas['Delivery'];

type Received = { headers: Record<string, string>; body: string; path: string };

export let cloud: Installation;

export let metadata: Awaited<ReturnType<typeof openMetadata>>;

let service: Service;

export const servers: Server[] = [];

/** A receiver that answers as configured, and keeps the requests that it got. */
export async function receiver(
  answer: (received: Received, n: number) => number | 'never' | { redirect: string } = () => 204,
  host = '127.0.0.1',
) {
  const received: Received[] = [];
  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const message = {
      headers: headersOf(request),
      body: await bodyOf(request),
      path: request.url ?? '',
    };
    const how = answer(message, received.push(message));
    if (how === 'never') return;
    if (typeof how === 'object') response.writeHead(302, { Location: how.redirect });
    else response.writeHead(how);
    response.end();
  };
  const server = createServer((request, response) => void serve(request, response));
  server.listen(0, host);
  await once(server, 'listening');
  servers.push(server);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the server has a port
  return { url: `http://${host}:${(server.address() as AddressInfo).port}/hook`, received };
}

function headersOf({ headers }: IncomingMessage): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, String(value)]));
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks).toString('utf8');
}

export async function webhooks(): Promise<Schemas['Webhook'][]> {
  const { data } = await cloud.client.GET('/projects/{project_id}/webhooks', {
    params: { path: { project_id: cloud.projectId } },
  });
  return data ?? [];
}

export async function makeWebhook(
  body: Schemas['CreateWebhook'],
): Promise<{ id: string; secret: string }> {
  const { data } = await cloud.client.POST('/projects/{project_id}/webhooks', {
    params: { path: { project_id: cloud.projectId } },
    body,
  });
  return { id: data?.id ?? '', secret: data?.secret ?? '' };
}

export async function deliveries(id: string, status?: Delivery['status']): Promise<Delivery[]> {
  const { data } = await cloud.client.GET(
    '/projects/{project_id}/webhooks/{webhook_id}/deliveries',
    {
      params: {
        path: { project_id: cloud.projectId, webhook_id: id },
        query: status === undefined ? {} : { status },
      },
    },
  );
  return data ?? [];
}

export const rename = (name: string) =>
  cloud.request('POST', `/services/${service.service_id}/rename`, { name });

/** As if the time until the next attempts were over. */
export const hurry = (id: string) =>
  sql`update deliveries set next_at = now() where webhook_id = ${id}
    and status = 'pending'`.execute(metadata.db);

export async function otherProject(): Promise<{ projectId: string; key: string }> {
  const projectId = newId();
  const publicKey = `HD${newId()}${newId()}`;
  await metadata.db.insertInto('projects').values({ id: projectId, name: 'other' }).execute();
  await metadata.db
    .insertInto('api_keys')
    .values({
      public_key: publicKey,
      project_id: projectId,
      name: 'another',
      role: 'admin',
      secret_hash: sha256('secret'),
      expires_at: null,
      revoked_at: null,
      last_used: null,
    })
    .execute();
  return { projectId, key: `${publicKey}:secret` };
}

export async function setUp(): Promise<void> {
  cloud = await install({ HOWDAH_WEBHOOK_NETWORKS: '127.0.0.1/32' });
  metadata = await openMetadata(cloud.home);
  service = await cloud.create({ name: 'told of', service_type: 'POSTGRES' });
}

export async function tearDown(): Promise<void> {
  await metadata.close();
  expect(await cloud.destroy()).toEqual([]);
}
