/** Promises about data and passwords: what a stop, a fork and a move keep, and who logs in. */
import assert from 'node:assert/strict';
import { EngineUnavailable } from '../engine.ts';
import type { Origin, ServiceSpec } from '../spec.ts';
import { whyNotConverted } from '../upgrades.ts';
import {
  can,
  KEEP,
  settle,
  settling,
  withService,
  type Promised,
  type Subject,
} from './subject.ts';

const paused = (spec: ServiceSpec): ServiceSpec => ({ ...spec, power: 'paused' });
const NEW_PASSWORD = 'another-password-of-the-suite';
const CHANGE = { isPaused: false, keepSessions: false, sets: [] };

export const DATA_PROMISES: readonly Promised[] = [
  {
    name: 'the first password is active once a service has settled',
    check: (subject) =>
      withService(subject, {}, async (spec) => {
        assert.equal(await subject.canLogIn(spec, subject.firstPassword), true);
        assert.equal(await subject.canLogIn(spec, NEW_PASSWORD), false);
      }),
  },
  {
    name: 'a new password is active when the call returns',
    check: (subject) =>
      withService(subject, {}, async (spec) => {
        const { sql } = subject.engine;
        await sql.setPassword(spec.id, await subject.verifierOf(NEW_PASSWORD), CHANGE);
        assert.equal(await subject.canLogIn(spec, NEW_PASSWORD), true);
        assert.equal(await subject.canLogIn(spec, subject.firstPassword), false);
      }),
  },
  {
    name: 'a password that is set while a service is stopped is active once it runs',
    check: (subject) =>
      withService(subject, {}, async (spec) => {
        const { sql } = subject.engine;
        await settle(subject, paused(spec));
        const verifier = await subject.verifierOf(NEW_PASSWORD);
        await assert.rejects(sql.setPassword(spec.id, verifier, CHANGE), EngineUnavailable);
        await sql.setPassword(spec.id, verifier, { ...CHANGE, isPaused: true });
        await settle(subject, spec);
        assert.equal(await subject.canLogIn(spec, NEW_PASSWORD), true);
        assert.equal(await subject.canLogIn(spec, subject.firstPassword), false);
      }),
  },
  {
    name: 'a stopped service refuses a statement as unavailable',
    check: (subject) =>
      withService(subject, {}, async (spec) => {
        await settle(subject, paused(spec));
        const statement = { sql: 'select 1', parameters: [], maxRows: 1, timeoutMs: 10_000 };
        const query = subject.engine.sql.query(spec.id, null, statement);
        await assert.rejects(query, EngineUnavailable);
      }),
  },
  {
    name: 'a service and its forks have the major version that was asked for',
    applies: can('forkNow'),
    check: majorsAreKept,
  },
  {
    name: 'data of another major version is not started',
    check: otherMajorIsRefused,
  },
  {
    name: 'an upgrade keeps the data in a newer version, and its undo brings the former data back',
    check: upgradesAreUndone,
  },
  {
    name: 'lost data is not replaced by an empty database, and is used again when it is back',
    check: lostDataIsNotReplaced,
  },
  {
    name: 'a stop and a resize keep the data',
    check: (subject) =>
      withService(subject, {}, async (spec) => {
        await subject.insertRows(spec, 3);
        await settle(subject, paused(spec));
        await settle(subject, spec);
        assert.equal(await subject.countRows(spec), 3, 'after a stop');
        await settle(subject, { ...spec, size: { cpuMillis: 1000, memoryGbs: 4 } });
        assert.equal(await subject.countRows(spec), 3, 'after a resize');
      }),
  },
  {
    name: 'a move into a VPC and out of it keeps the data',
    applies: can('attachToVPC'),
    check: (subject) =>
      withService(subject, {}, async (spec) => {
        await subject.insertRows(spec, 2);
        const vpc = { id: '421300', address: null };
        await settle(subject, { ...spec, vpc, allowedNetworks: [subject.clientNetwork] });
        assert.equal(await subject.countRows(spec), 2, 'inside');
        await settle(subject, spec);
        assert.equal(await subject.countRows(spec), 2, 'outside');
      }),
  },
  {
    name: 'only clients of the allowed networks log in',
    applies: can('attachToAllowList'),
    check: (subject) =>
      withService(subject, {}, async (spec) => {
        const logsIn = () => subject.canLogIn(spec, subject.firstPassword);
        // Whether the first password is active is a promise of its own.
        const before = await logsIn();
        await settle(subject, { ...spec, allowedNetworks: ['192.0.2.0/24', '2001:db8::/32'] });
        assert.equal(await logsIn(), false, 'from another network');
        await settle(subject, {
          ...spec,
          allowedNetworks: ['192.0.2.0/24', subject.clientNetwork],
        });
        assert.equal(await logsIn(), before, 'from an allowed network');
        await settle(subject, spec);
        assert.equal(await logsIn(), before, 'from any network');
      }),
  },
  { name: 'a fork has the data of its origin', applies: can('forkNow'), check: forkNow },
  {
    name: 'a fork of the last snapshot has the data of the snapshot',
    applies: can('forkPast'),
    check: forkSnapshot,
  },
  {
    name: 'a fork at a point in time has the data of that time',
    applies: can('forkPast'),
    check: forkAtTime,
  },
];

async function forkOf(
  subject: Subject,
  origin: Origin,
  work: (fork: ServiceSpec) => Promise<void>,
): Promise<void> {
  await settling(subject, { ...(await subject.newSpec()), origin }, work);
}

function forkNow(subject: Subject): Promise<void> {
  return withService(subject, {}, async (spec) => {
    await subject.insertRows(spec, 5);
    const origin: Origin = { parent: spec.id, strategy: 'NOW', targetTime: null };
    await forkOf(subject, origin, async (fork) => {
      assert.equal(await subject.countRows(fork), 5);
      await subject.insertRows(fork, 1);
      assert.deepEqual([await subject.countRows(fork), await subject.countRows(spec)], [6, 5]);
    });
  });
}

/** Writes, and has a snapshot taken of it. */
async function writeAndKeep(subject: Subject, spec: ServiceSpec, rows: number): Promise<void> {
  await subject.insertRows(spec, rows);
  await subject.wait(subject.snapshotEveryMs + 100);
  assert.equal(await subject.engine.backups.keep(spec.id, KEEP), false, 'the snapshot was taken');
}

function forkSnapshot(subject: Subject): Promise<void> {
  return withService(subject, {}, async (spec) => {
    await writeAndKeep(subject, spec, 4);
    await subject.wait(100);
    await subject.insertRows(spec, 3);
    const origin: Origin = { parent: spec.id, strategy: 'LAST_SNAPSHOT', targetTime: null };
    await forkOf(subject, origin, async (fork) => {
      assert.equal(await subject.countRows(fork), 4);
    });
  });
}

function forkAtTime(subject: Subject): Promise<void> {
  return withService(subject, {}, async (spec) => {
    await subject.insertRows(spec, 2);
    await subject.wait(100);
    const targetTime = new Date(await subject.nowMs()).toISOString();
    await subject.wait(100);
    await subject.insertRows(spec, 7);
    await forkOf(subject, { parent: spec.id, strategy: 'PITR', targetTime }, async (fork) => {
      assert.equal(await subject.countRows(fork), 2);
    });
  });
}

async function majorsAreKept(subject: Subject): Promise<void> {
  const { capabilities, lifecycle, upgrades } = subject.engine;
  const majors = capabilities.versions.POSTGRES.filter((one) => 'version' in one);
  assert.ok(majors.length > 0);
  for (const { major } of majors)
    await withService(subject, { major }, async (spec) => {
      assert.equal(await lifecycle.majorOf(spec.id), major);
      const origin: Origin = { parent: spec.id, strategy: 'NOW', targetTime: null };
      await withService(subject, { major, origin }, async (fork) => {
        assert.equal(await lifecycle.majorOf(fork.id), major);
      });
      for (const newer of majors.filter((one) => one.major > major)) {
        if (whyNotConverted(upgrades, [], newer.major) !== null) continue;
        await withService(subject, { major: newer.major, origin }, async (fork) => {
          assert.equal(await lifecycle.majorOf(fork.id), newer.major);
        });
      }
    });
}

async function upgradesAreUndone(subject: Subject): Promise<void> {
  const { capabilities, lifecycle, upgrades } = subject.engine;
  const majors = capabilities.versions.POSTGRES.filter((one) => 'version' in one);
  const pairs = majors
    .flatMap(({ major: to }) => majors.map(({ major: from }) => ({ from, to })))
    .filter(({ from, to }) => from < to && whyNotConverted(upgrades, [], to) === null);
  assert.ok(majors.length > 0);
  for (const { from, to } of pairs.slice(0, 1))
    await withService(subject, { major: from }, async (old) => {
      await subject.insertRows(old, 3);
      const upgrade = { id: 'upgrade001', to, undo: false, before: null };
      await settle(subject, { ...old, upgrade });
      const fresh = { ...old, major: to };
      await settle(subject, fresh);
      assert.equal(await lifecycle.majorOf(old.id), to);
      assert.equal(await subject.countRows(fresh), 3);
      await subject.insertRows(fresh, 2);
      await settle(subject, { ...fresh, upgrade: { ...upgrade, to: from, undo: true } });
      // Data of the newer version would not be started.
      await settle(subject, old);
      assert.equal(await subject.countRows(old), 3);
    });
}

async function lostDataIsNotReplaced(subject: Subject): Promise<void> {
  await withService(subject, {}, async (unknown) => {
    const spec = { ...unknown, provisioned: true };
    await settle(subject, paused(spec));
    const bringBack = await subject.loseData(spec.id);
    for (let round = 0; round < 3; round++) {
      const verdict = await subject.engine.lifecycle.converge(spec, async () => undefined);
      assert.equal(verdict.outcome, 'failed');
      assert.equal(verdict.did, null);
      assert.deepEqual(verdict.seen, { reachable: false, present: false, provisioned: false });
    }
    await bringBack();
    const { steps } = await settle(subject, spec);
    assert.deepEqual(
      steps.filter((step) => step.startsWith('clone')),
      [],
    );
  });
}

async function otherMajorIsRefused(subject: Subject): Promise<void> {
  await withService(subject, {}, async (spec) => {
    const { lifecycle } = subject.engine;
    await settle(subject, paused(spec));
    const major = await lifecycle.majorOf(spec.id);
    assert.ok(major !== null);
    const verdict = await lifecycle.converge({ ...spec, major: major + 1 }, async () => undefined);
    assert.equal(verdict.outcome, 'failed');
    assert.match(
      verdict.outcome === 'failed' ? verdict.reason : '',
      new RegExp(`PostgreSQL ${major}.*${major + 1}`),
    );
    assert.equal(await lifecycle.runs(spec.id), false);
    await settle(subject, { ...spec, major });
    assert.equal(await lifecycle.runs(spec.id), true);
  });
}
