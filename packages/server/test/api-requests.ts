/**
 * An installation with a service and a VPC, and requests to its API with any headers: for tests of
 * errors.
 */
import { randomBytes } from 'node:crypto';
import { expect } from 'vitest';
import { install, type Installation } from './harness.ts';
import type { Answer, Service } from './harness-caller.ts';
import { openMetadata } from './metadata.ts';
import { insertKey, insertProject, newId, sha256 } from './probe.ts';

type Records = Awaited<ReturnType<typeof openMetadata>>;

export let cloud: Installation;
export let metadata: Records;
export let service: Service & { initial_password: string };
export let vpc: string;
export async function setUp(): Promise<void> {
  cloud = await install();
  metadata = await openMetadata(cloud.home);
  service = await cloud.create({ name: 'target', service_type: 'POSTGRES' });
  const { body } = await cloud.request('POST', '/vpcs', {
    name: 'target',
    cidr: '10.1.0.0/16',
    region_code: 'local',
  });
  vpc = String(Reflect.get(Object(body), 'id'));
}

export async function tearDown(): Promise<void> {
  await metadata?.close();
  expect(await cloud?.destroy()).toEqual([]);
}

const CODES: Record<number, string[]> = {
  400: ['INVALID_REQUEST', 'INVALID_STATE'],
  401: ['UNAUTHORIZED'],
  403: ['FORBIDDEN'],
  404: ['NOT_FOUND'],
  405: ['METHOD_NOT_ALLOWED'],
  408: ['INVALID_REQUEST'],
  413: ['PAYLOAD_TOO_LARGE'],
  415: ['UNSUPPORTED_MEDIA_TYPE'],
  422: ['UNAVAILABLE_HERE', 'LIMIT_EXCEEDED'],
  431: ['INVALID_REQUEST'],
};

/** An error as the contract has it, and the status that goes with its code. */
export function expectError(
  { status, body }: Pick<Answer, 'status' | 'body'>,
  expected: number,
  ...parts: string[]
): void {
  expect(status, JSON.stringify(body)).toBe(expected);
  expect(body).toEqual({
    code: expect.stringMatching(/^[A-Z_]+$/),
    message: expect.stringMatching(/./),
    request_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
  });
  expect(CODES[status]).toContain(Reflect.get(Object(body), 'code'));
  const message = String(Reflect.get(Object(body), 'message'));
  for (const part of parts) expect(message).toContain(part);
  expect(message).not.toMatch(/node_modules|\.ts:|\n\s+at .*\(|select |insert |update "/);
}

/** A request with any headers, below the base URL. */
export async function send(
  method: string,
  path: string,
  headers: Record<string, string>,
  body?: string,
): Promise<Answer> {
  const response = await fetch(`${cloud.apiUrl}${path}`, {
    method,
    headers,
    ...(body === undefined ? {} : { body }),
  });
  const text = await response.text();
  if (response.status >= 400) {
    expect(response.headers.get('content-type')).toMatch(/^application\/json\b/);
    expect(response.headers.get('x-request-id')).toBe(
      Reflect.get(Object(JSON.parse(text)), 'request_id'),
    );
  }
  return {
    status: response.status,
    headers: response.headers,
    body: text === '' ? '' : JSON.parse(text),
  };
}
export const bearer = (key: string) => ({ Authorization: `Bearer ${key}` });
export const json = { 'Content-Type': 'application/json' };
export const at = (path: string) => `/projects/${cloud.projectId}${path}`;
export const ofVpc = (path: string) => at(`/vpcs/${vpc}${path}`);
export const ofTarget = (path: string) => at(`/services/${service.service_id}${path}`);

export async function newKey(more: {
  role?: 'admin' | 'developer' | 'viewer';
  projectId?: string;
  expiresAt?: Date;
}): Promise<string> {
  const [publicKey, secret] = [`HD${newId()}`, randomBytes(16).toString('base64url')];
  const { role = 'admin', projectId = cloud.projectId, expiresAt } = more;
  await insertKey(metadata.db, {
    publicKey,
    secretHash: sha256(secret),
    projectId,
    name: 'test',
    role,
    ...(expiresAt === undefined ? {} : { expiresAt }),
  });
  return `${publicKey}:${secret}`;
}

export async function newProject(): Promise<string> {
  const id = newId();
  await insertProject(metadata.db, { id, name: 'another' });
  return id;
}
