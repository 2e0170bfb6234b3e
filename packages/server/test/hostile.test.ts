/**
 * Slow, huge, malformed and endless requests from some addresses, and wrong keys from that of
 * everybody: good calls are all answered, each attacker gets the reason or is thrown out, and the
 * memory stays bounded.
 */
import { execFile, fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile } from 'node:fs/promises';
import { setPriority } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { untilExpected } from './until.ts';

/**
 * The growth allowed: with all attacks at once, and garbage not yet collected, it is 50 to 100 MB.
 */
const GROWTH_MB = 200;
const GOOD_CALLS = 500;
const ATTACKERS_NICENESS = 19;

const runFile = promisify(execFile);

let cloud: Installation;
let service: Service;
beforeAll(async () => {
  cloud = await install();
  service = await cloud.create({ name: 'attacked', service_type: 'POSTGRES' });
});
afterAll(async () => {
  // Where the test has failed they go on.
  await endAttacks();
  expect(await cloud?.destroy()).toEqual([]);
});

const memoryMb = async (): Promise<number> =>
  Number(
    /^VmRSS:\s+(\d+) kB$/m.exec(await readFile(`/proc/${cloud.planePid()}/status`, 'utf8'))?.[1],
  ) / 1024;
const openFiles = async (): Promise<number> =>
  (await readdir(`/proc/${cloud.planePid()}/fd`)).length;

/**
 * The middle one and the slowest but one in a hundred, in milliseconds, as a client sees them that
 * does nothing else.
 */
async function timesOfGoodCalls(): Promise<{ p50: number; p99: number }> {
  const url = `${cloud.apiUrl}/projects/${cloud.projectId}/services/${service.service_id}`;
  const { stdout } = await runFile(process.execPath, [
    join(import.meta.dirname, 'good-calls.mjs'),
    url,
    cloud.key,
    String(GOOD_CALLS),
  ]);
  const { statuses, p50, p99 }: { statuses: number[]; p50: number; p99: number } =
    JSON.parse(stdout);
  expect(statuses).toEqual([200]);
  return { p50, p99 };
}

/**
 * The longest that the event loop was held up since this was asked last. A figure, not a condition:
 * attackers and others share the processors.
 */
async function eventLoopDelayMs(): Promise<number> {
  const metrics = await (await fetch(`http://127.0.0.1:${cloud.port}/metrics`)).text();
  return Number(/^nodejs_eventloop_lag_max_seconds (\S+)/m.exec(metrics)?.[1]) * 1000;
}

/** How each attack is ended: by which answers, or by the connection's end alone. */
const ENDS: Record<string, readonly (number | 'end')[]> = {
  silent: [408, 'end'],
  slowHeaders: [408],
  slowBody: [408],
  endlessBody: [413, 'end'],
  hugeBody: [413, 'end'],
  hugeHeaders: [431],
  garbage: [400],
  deafPipeline: ['end'],
  wrongKeys: [429],
};

/** The attackers: a process of its own, as on a machine of their own. */
let attackers: ChildProcess | null = null;
/** The outcomes of each attack so far. */
const seen = new Map<string, Set<number | 'end'>>();

type Outcome = { name: string; end: number | 'end' };

/** Begins all attacks; each goes on until `endAttacks`. */
function beginAttacks(): ChildProcess {
  const { pathname } = new URL(cloud.apiUrl);
  const path = `${pathname}/projects/${cloud.projectId}/services/${service.service_id}`;
  const child = fork(join(import.meta.dirname, 'hostile-attacks.mjs'), [
    String(cloud.port),
    path,
    cloud.key,
  ]);
  child.on('message', ({ name, end }: Outcome) =>
    seen.set(name, (seen.get(name) ?? new Set()).add(end)),
  );
  attackers = child;
  return child;
}

async function endAttacks(): Promise<void> {
  const child = attackers;
  attackers = null;
  if (child === null || child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGKILL');
  await ended;
}

test(
  'others are answered, attackers are ended, and the memory stays bounded',
  { tags: 'slow' },
  async () => {
    const undisturbed = await timesOfGoodCalls();
    const [memoryBefore, filesBefore] = [await memoryMb(), await openFiles()];
    // Read, it begins again.
    await eventLoopDelayMs();
    const { pid } = beginAttacks();
    await untilExpected('a wrong key is refused by 429', () =>
      expect(seen.get('wrongKeys')?.has(429)).toBe(true),
    );
    const good = timesOfGoodCalls();
    // Attackers have machines of their own: from here on they get what the client that was just
    // begun and the control plane leave of the processors.
    if (pid !== undefined) setPriority(pid, ATTACKERS_NICENESS);
    const attacked = await good;
    // Good calls from the address of the wrong keys, many at a time.
    for (let round = 0; round < 10; round++) {
      const answers = await Promise.all(
        Array.from({ length: 50 }, () => cloud.request('GET', `/services/${service.service_id}`)),
      );
      expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    }
    expect(
      (await cloud.request('POST', `/services/${service.service_id}/rename`, { name: 'renamed' }))
        .status,
    ).toBe(200);
    const memoryDuring = await memoryMb();
    const endless = () =>
      Object.entries(ENDS).flatMap(([name, ends]) =>
        ends.some((end) => seen.get(name)?.has(end) === true) ? [] : [name],
      );
    await untilExpected('each kind of attack was ended', () => expect(endless()).toEqual([]));
    await endAttacks();
    const heldUpMs = await eventLoopDelayMs();
    const shown = (time: { p50: number; p99: number }) =>
      `p50 ${time.p50.toFixed(1)} ms, p99 ${time.p99.toFixed(1)} ms`;
    process.stdout.write(
      `GET: ${shown(undisturbed)}; under attack: ${shown(attacked)}; ` +
        `memory ${memoryBefore.toFixed(0)} MB → ${memoryDuring.toFixed(0)} MB; ` +
        `event loop held up for ${heldUpMs.toFixed(0)} ms at most\n`,
    );
    expect(memoryDuring - memoryBefore).toBeLessThan(GROWTH_MB);
    // Nothing of it stays open.
    await untilExpected('the connections of the attackers are closed', async () =>
      expect(await openFiles()).toBeLessThan(filesBefore + 20),
    );
    const metrics = await (await fetch(`http://127.0.0.1:${cloud.port}/metrics`)).text();
    expect(metrics.match(/status="5\d\d"/g) ?? []).toEqual([]);
  },
);

test('refused bodies are not kept', { tags: 'slow' }, async () => {
  const name = 'x'.repeat(60_000);
  const before = await memoryMb();
  // Twice what the control plane may grow by.
  for (let sentMb = 0; sentMb < 2 * GROWTH_MB; sentMb += (20 * name.length) / 1e6) {
    const answers = await Promise.all(
      Array.from({ length: 20 }, () =>
        cloud.request('POST', `/services/${service.service_id}/rename`, { name }),
      ),
    );
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([400]));
  }
  expect((await memoryMb()) - before).toBeLessThan(GROWTH_MB);
});
