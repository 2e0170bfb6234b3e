/** Too little room: a volume that is full, and a node that evicts its pods for want of memory. */
import { expect, test } from 'vitest';
import { rig, testWithDouble } from './cloud.ts';
import { converge, reasonOf, SUPERUSER, untilSettled, withSubject } from './faults.ts';
import { openLedger } from './ledger.ts';
import { namespaceOf, podOf, removeAll, settle } from './probe.ts';

/** Takes what is free on the volume, and begins files of WAL until there is no room for one. */
const FILL = `cat /dev/zero >/var/lib/postgresql/data/full 2>/dev/null
while ${SUPERUSER} --command='select pg_switch_wal()' >/dev/null; do :; done`;

test('a service whose volume is full says so, and has all its data once that is larger', () =>
  withSubject(async (subject) => {
    const spec = { ...(await subject.newSpec()), storageGb: 1 };
    await settle(subject, spec);
    const ledger = await openLedger((work) => subject.withClient(spec, work));
    await ledger.goesOn();
    const metadata = { namespace: namespaceOf(subject.projectId), name: podOf(spec.id, 0) };
    // The container ends before the script does.
    await rig()
      .exec({ metadata }, FILL)
      .catch(() => undefined);
    const failed = await converge(subject, spec, ({ outcome }) => outcome === 'failed');
    expect(reasonOf(failed)).toContain('its volume is full: resize it to more storage_gb');
    const larger = { ...spec, storageGb: 3 };
    await untilSettled(subject, larger);
    await ledger.goesOn();
    expect(await ledger.end()).toEqual([]);
    await removeAll(subject, spec.id);
    expect(await subject.leftovers(spec.id)).toEqual([]);
  }));

// The operator itself would be evicted.
testWithDouble('a service that its node evicts says so, and goes on once there is memory', () =>
  withSubject(async (subject) => {
    const spec = await subject.newSpec();
    await settle(subject, spec);
    const ledger = await openLedger((work) => subject.withClient(spec, work));
    await ledger.goesOn();
    await rig().evict();
    try {
      const failed = await converge(subject, spec, ({ outcome }) => outcome === 'failed');
      expect(reasonOf(failed)).toMatch(/start PostgreSQL: .*untolerated taint/);
    } finally {
      await rig().stopEvicting();
    }
    await untilSettled(subject, spec);
    await ledger.goesOn();
    expect(await ledger.end()).toEqual([]);
    await removeAll(subject, spec.id);
    expect(await subject.leftovers(spec.id)).toEqual([]);
  }),
);
