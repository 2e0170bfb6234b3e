/** An installation, and what tests of faults ask of it. */
import { join } from 'node:path';
import { expect } from 'vitest';
import { install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { createLayout, findServer, type InstancePaths } from './probe.ts';
import { until } from './until.ts';

export let cloud: Installation;

export const pathsOf = (service: Pick<Service, 'service_id'>, at = cloud): InstancePaths =>
  createLayout(join(at.home, 'data')).service(service.service_id);

export async function postmasterOf(
  service: Pick<Service, 'service_id'>,
  at = cloud,
): Promise<number> {
  const server = await findServer(pathsOf(service, at));
  if (server === null) throw new Error(`no server of ${service.service_id}`);
  return server.postmaster.pid;
}

/** Waits until an operation of this kind has ended well, and returns it. */
export async function succeeded(service: Pick<Service, 'service_id'>, kind: string, at = cloud) {
  return until(`a ${kind} has succeeded`, async () =>
    (await at.operations(service.service_id)).find(
      (operation) => operation.kind === kind && operation.status === 'succeeded',
    ),
  );
}

export async function setUp(): Promise<void> {
  cloud = await install();
}

export async function tearDown(): Promise<void> {
  expect(await cloud.destroy()).toEqual([]);
}
