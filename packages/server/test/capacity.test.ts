/** Sizes that are more than the machine has: refused, forced, and what then fails. */
import { totalmem } from 'node:os';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { install, type Installation } from './harness.ts';
import type { ServiceAccess } from './ha-load.ts';
import { tuned } from './tuning.ts';
import { until, untilExpected } from './until.ts';

const GIB = 1024 ** 3;
const TOO_LARGE = { cpu_millis: 4000, memory_gbs: 16 };

let cloud: Installation;
let service: ServiceAccess;
beforeAll(async () => {
  cloud = await install(tuned({ capacity: { cpuMillis: 2000, memoryBytes: 7.5 * GIB } }));
  service = await cloud.create({ name: 'orders', service_type: 'POSTGRES' });
  await cloud.until(service.service_id, 'READY');
});
afterAll(async () => expect(await cloud?.destroy()).toEqual([]));

/** The calls that take a size. */
const calls = (): [path: string, body: object][] => [
  ['/services', { name: 'large', service_type: 'POSTGRES' }],
  [`/services/${service.service_id}/resize`, {}],
  [`/services/${service.service_id}/forkService`, { fork_strategy: 'NOW', name: 'copy' }],
  [`/services/${service.service_id}/replicaSets`, { name: 'readers', nodes: 1 }],
];

test('a size above that of the machine is refused by each call, and by its dry run', async () => {
  for (const [path, body] of calls())
    for (const query of ['', '?dry_run=true']) {
      const answer = await cloud.request('POST', `${path}${query}`, { ...body, ...TOO_LARGE });
      expect(answer, path).toMatchObject({ status: 422, body: { code: 'UNAVAILABLE_HERE' } });
      expect(answer.body).toMatchObject({
        message: expect.stringMatching(
          /4000\/16 is more than the machine of .* 2 CPU and 7.5 GB of memory.*2000\/8.*force=true/,
        ),
      });
    }
});

test('force accepts it, in the body and in the query', async () => {
  for (const [path, body] of calls()) {
    const sized = { ...body, ...TOO_LARGE };
    const inBody = await cloud.request('POST', `${path}?dry_run=true`, { ...sized, force: true });
    const inQuery = await cloud.request('POST', `${path}?dry_run=true&force=true`, sized);
    expect([inBody.status, inQuery.status], path).toEqual([200, 200]);
    const not = await cloud.request('POST', `${path}?dry_run=true&force=false`, sized);
    expect(not.status, path).toBe(422);
  }
  const renamed = await cloud.request('POST', `/services/${service.service_id}/rename?force=true`, {
    name: 'other',
  });
  expect(renamed.status).toBe(400);
});

test('a size that the machine has is accepted, and so is one that is not asked for', async () => {
  for (const [path, body] of calls().filter(([one]) => !one.endsWith('replicaSets'))) {
    const fitting = { ...body, cpu_millis: 2000, memory_gbs: 8 };
    expect((await cloud.request('POST', `${path}?dry_run=true`, fitting)).status, path).toBe(200);
    if (path.endsWith('resize')) continue;
    expect((await cloud.request('POST', `${path}?dry_run=true`, body)).status, path).toBe(200);
  }
});

test('a quota that the whole disk could not hold is refused, unless it is forced', async () => {
  const path = `/services/${service.service_id}/resize?dry_run=true`;
  const refused = await cloud.request('POST', path, { storage_gb: 65_536 });
  expect(refused).toMatchObject({
    status: 422,
    body: { message: expect.stringContaining('more than the disk of the region') },
  });
  const forced = await cloud.request('POST', path, { storage_gb: 65_536, force: true });
  expect(forced.status).toBe(200);
});

test('the command line has --force, and names it', async () => {
  const words = ['service', 'resize', 'orders', '--cpu-millis', '4000', '--dry-run'] as const;
  const refused = await cloud.cli(...words);
  expect(refused.code).not.toBe(0);
  expect(refused.stderr).toContain('with --force it is accepted');
  expect((await cloud.cli(...words, '--force')).code).toBe(0);
});

describe('a forced size', () => {
  let id: string;
  beforeAll(async () => {
    const large = { cpu_millis: 64_000, memory_gbs: 256, force: true };
    const body = { name: 'forced', service_type: 'POSTGRES', ...large };
    const made = await cloud.request('POST', '/services', body);
    expect(made.status).toBe(202);
    id = String(Reflect.get(Object(made.body), 'service_id'));
  });

  test('shows as overcommitment in the region, to the operator, and by the doctor', async () => {
    const { body } = await cloud.request('GET', '/regions');
    expect(body).toMatchObject([
      {
        capacity: { cpu_millis: 2000, memory_bytes: 7.5 * GIB },
        committed: { servers: 2, over: expect.stringContaining('of 2 CPU') },
      },
    ]);
    const { stdout } = await cloud.cli('doctor');
    expect(stdout).toMatch(/capacity.*64\.5 CPU, 258 GB of memory.*more than there is/);
  });

  // A machine with so much memory starts it.
  test.runIf(totalmem() < 48 * GIB)(
    'fails to start with its cause and the command that cures it, and starts after that',
    async () => {
      const reason = await until('the start fails', async () => {
        const [operation] = await cloud.operations(id);
        return operation?.error;
      });
      expect(reason).toMatch(
        /Cause: the machine has too little memory for the size; remedy: resize/,
      );
      const path = `/services/${id}/resize`;
      await untilExpected('it can be resized', async () =>
        expect((await cloud.request('POST', path, { cpu_millis: 500, memory_gbs: 2 })).status).toBe(
          202,
        ),
      );
      await cloud.until(id, 'READY');
    },
  );
});
