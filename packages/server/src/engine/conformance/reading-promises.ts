/** Promises about what is read: logs, usage, backups, the disk and networks. */
import assert from 'node:assert/strict';
import { REGIONAL_ACTIONS, type LogEntry } from '@howdah/contract';
import { BadCursor, EngineUnavailable, type LogQuery, type Usage } from '../engine.ts';
import type { RunStep } from '../run-step.ts';
import type { ServiceSpec } from '../spec.ts';
import {
  can,
  KEEP,
  runStatement,
  settle,
  until,
  withService,
  type Promised,
  type Subject,
} from './subject.ts';

const ALL: LogQuery = {
  sinceMs: null,
  untilMs: null,
  cursor: null,
  search: [],
  severities: [],
  limit: 1000,
};

export const READING_PROMISES: readonly Promised[] = [
  { name: 'pages of a server log have each entry once, newest first', check: logPages },
  { name: 'a server log is searched by word, severity and time', check: logSearch },
  {
    name: 'a cursor of no page is refused',
    check: (subject) =>
      withService(subject, {}, async ({ id }) => {
        const { observe } = subject.engine;
        const read = observe.logs(id, null, { ...ALL, cursor: 'nonsense' }, signal());
        await assert.rejects(read, BadCursor);
      }),
  },
  { name: 'usage has plausible figures of each server', check: usageFigures },
  {
    name: 'the usage of a stopped service is unavailable',
    check: (subject) =>
      withService(subject, {}, async (spec) => {
        await settle(subject, { ...spec, power: 'paused' });
        await assert.rejects(subject.engine.observe.usage(spec.id), EngineUnavailable);
      }),
  },
  {
    name: 'snapshots are listed newest first, within their window',
    applies: can('verifyBackup'),
    check: snapshotsInOrder,
  },
  {
    name: 'a snapshot is taken only after a write',
    applies: can('verifyBackup'),
    check: snapshotAfterWrite,
  },
  {
    name: 'a verification is kept with its snapshot',
    applies: can('verifyBackup'),
    check: verificationKept,
  },
  {
    name: 'a verification ends with its signal',
    applies: can('verifyBackup'),
    check: verificationAborted,
  },
  { name: 'quotas and the disk have plausible figures', check: diskFigures },
  { name: 'an impossible action has a reason, and a possible one works', check: actionsAreTrue },
  {
    name: 'networks are new once',
    applies: ({ capabilities }) => capabilities.vpc.isNetwork,
    check: networksOnce,
  },
];

async function actionsAreTrue(subject: Subject): Promise<void> {
  const { capabilities } = subject.engine;
  for (const action of REGIONAL_ACTIONS) {
    const possibility = capabilities.actions[action];
    assert.ok(possibility.possible || possibility.why.length > 0, action);
  }
  await withService(subject, {}, async (spec) => {
    const asked = runStatement(subject, spec, 'select 1');
    if (capabilities.actions.query.possible) assert.equal((await asked).row_count, 1);
    else await assert.rejects(asked, EngineUnavailable);
  });
}

const signal = (): AbortSignal => new AbortController().signal;

async function readAll(subject: Subject, id: string, query: LogQuery): Promise<LogEntry[]> {
  const entries: LogEntry[] = [];
  for (let cursor: string | null = null, pages = 0; pages < 500; pages += 1) {
    const page = await subject.engine.observe.logs(id, null, { ...query, cursor }, signal());
    entries.push(...page.entries);
    assert.ok(page.entries.length <= query.limit, `${page.entries.length} entries of a page`);
    if (page.cursor === null) return entries;
    ({ cursor } = page);
  }
  return assert.fail('the pages do not end');
}

function logPages(subject: Subject): Promise<void> {
  return withService(subject, {}, async (spec) => {
    // A stopped server writes nothing while it is read.
    await settle(subject, { ...spec, power: 'paused' });
    const whole = await readAll(subject, spec.id, ALL);
    assert.ok(whole.length > 2, `${whole.length} entries`);
    const times = whole.map(({ timestamp }) => Date.parse(timestamp));
    assert.ok((times[0] ?? 0) >= (times.at(-1) ?? Infinity), 'the newest is first');
    assert.deepEqual(await readAll(subject, spec.id, { ...ALL, limit: 2 }), whole);
  });
}

function logSearch(subject: Subject): Promise<void> {
  return withService(subject, {}, async (spec) => {
    await settle(subject, { ...spec, power: 'paused' });
    const found = await readAll(subject, spec.id, { ...ALL, search: ['READY to accept'] });
    assert.ok(found.length > 0, 'the case does not matter');
    assert.deepEqual(
      found.filter(({ message }) => !/ready to accept/i.test(message)),
      [],
    );
    const none = await readAll(subject, spec.id, { ...ALL, severities: ['PANIC'] });
    assert.deepEqual(none, []);
    const later = (await subject.nowMs()) + 3_600_000;
    assert.deepEqual(await readAll(subject, spec.id, { ...ALL, sinceMs: later }), []);
    assert.notDeepEqual(await readAll(subject, spec.id, { ...ALL, untilMs: later }), []);
    assert.deepEqual(await readAll(subject, spec.id, { ...ALL, untilMs: 0 }), []);
  });
}

function usageFigures(subject: Subject): Promise<void> {
  return withService(subject, {}, async ({ id }) => {
    let used: Usage[] = [];
    // A server that has just started may not be measured yet.
    await until(subject, 'figures', async () => {
      used = await subject.engine.observe.usage(id).catch(() => []);
      return used.length > 0;
    });
    assert.deepEqual(
      used.map(({ node, lag }) => ({ node, lag })),
      [{ node: 0, lag: null }],
    );
    for (const one of used) {
      const { cpuMillis, memoryBytes, storageBytes, connections, transactions } = one;
      const isPlausible =
        cpuMillis >= 0 && connections >= 0 && transactions >= 0 && storageBytes > 1e6;
      assert.ok(isPlausible && memoryBytes > 1e6, JSON.stringify(one));
      const { cpu, writes } = one.waits;
      assert.ok((cpu?.millis ?? 0) >= 0 && (cpu?.neighbours ?? 0) >= 0, JSON.stringify(cpu));
      assert.ok(writes === null || (writes.millis >= 0 && writes.millis <= 1000));
    }
  });
}

/** Writes, and has a snapshot taken of it. */
async function takeSnapshot(subject: Subject, spec: ServiceSpec): Promise<void> {
  await subject.insertRows(spec, 10_000);
  await subject.wait(subject.snapshotEveryMs + 100);
  assert.equal(await subject.engine.backups.keep(spec.id, KEEP), false);
}

function snapshotsInOrder(subject: Subject): Promise<void> {
  return withService(subject, {}, async (spec) => {
    await takeSnapshot(subject, spec);
    await takeSnapshot(subject, spec);
    const { snapshots, window } = await subject.engine.backups.describe(spec.id);
    const times = snapshots.map(({ taken }) => Date.parse(taken));
    assert.ok(times.length >= 3, `${times.length} snapshots`);
    assert.deepEqual(
      times,
      times.toSorted((a, b) => b - a),
    );
    assert.equal(Date.parse(window.earliest ?? ''), times.at(-1));
    assert.ok(Date.parse(window.latest ?? '') >= (times[0] ?? Infinity), `${window.latest}`);
  });
}

function snapshotAfterWrite(subject: Subject): Promise<void> {
  return withService(subject, {}, async (spec) => {
    await takeSnapshot(subject, spec);
    const count = async (): Promise<number> =>
      (await subject.engine.backups.describe(spec.id)).snapshots.length;
    // Right after a write, the server itself writes more: a checkpoint, statistics.
    await until(subject, 'no snapshot without a write', async () => {
      const before = await count();
      await subject.wait(subject.snapshotEveryMs + 100);
      assert.equal(await subject.engine.backups.keep(spec.id, KEEP), false);
      return (await count()) === before;
    });
  });
}

function verificationKept(subject: Subject): Promise<void> {
  return withService(subject, {}, async (spec) => {
    const { backups, lifecycle } = subject.engine;
    await backups.keep(spec.id, KEEP);
    const steps: string[] = [];
    const runStep: RunStep = async (name, work) => {
      await work(() => undefined);
      steps.push(name);
    };
    const { verification, restored } = await backups.verify(spec, runStep, signal());
    assert.deepEqual(steps, lifecycle.plan('verifyBackup', spec, true, spec.size));
    assert.equal(verification.succeeded, true, verification.problem);
    assert.equal(restored?.ended, verification.at);
    const described = await backups.describe(spec.id);
    assert.deepEqual(described.last_verification, verification);
    assert.deepEqual(described.snapshots[0]?.verification, verification);
  });
}

function verificationAborted(subject: Subject): Promise<void> {
  return withService(subject, {}, async (spec) => {
    const { backups } = subject.engine;
    await backups.keep(spec.id, KEEP);
    const reason = new Error('the service is removed');
    const controller = new AbortController();
    const verifying = backups.verify(
      spec,
      async (_name, work) => {
        controller.abort(reason);
        await work(() => undefined);
      },
      controller.signal,
    );
    await assert.rejects(verifying, reason);
    assert.equal((await backups.describe(spec.id)).last_verification, undefined);
  });
}

function diskFigures(subject: Subject): Promise<void> {
  return withService(subject, {}, async (spec) => {
    const { storage, storageGuard } = subject.engine;
    const disk = (await storage.disk?.()) ?? null;
    if (disk !== null) {
      assert.ok(disk.freeBytes > 0 && disk.freeBytes <= disk.totalBytes, JSON.stringify(disk));
      assert.ok(disk.usedPercent >= 0 && disk.usedPercent <= 100, `${disk.usedPercent} %`);
    }
    const usedBytes = await storage.usedBytes(spec.id);
    assert.ok(usedBytes > 1e6, `${usedBytes} bytes`);
    const quota = { quotaBytes: spec.storageGb * 1e9, pressure: 'none' as const, removes: true };
    if (storageGuard !== null)
      assert.equal((await storageGuard.keepQuota(spec.id, quota)).stop, null);
    const shared = await storage.shared(spec.id);
    if (shared !== null)
      assert.ok(shared.owned_mb + shared.shared_mb <= shared.total_mb + 1, JSON.stringify(shared));
  });
}

async function networksOnce({ engine: { networks } }: Subject): Promise<void> {
  assert.ok(networks !== null, 'the capability says that VPCs are networks');
  const spec = { id: '421300', cidr: '10.213.0.0/24', addresses: [], peers: [] };
  assert.deepEqual(await networks.converge([spec]), [spec.id]);
  assert.deepEqual(await networks.converge([spec]), []);
  assert.deepEqual(await networks.converge([]), []);
  assert.deepEqual(await networks.converge([spec]), [spec.id], 'after its removal');
  await networks.converge([]);
}
