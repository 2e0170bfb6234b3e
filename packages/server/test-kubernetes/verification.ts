/** Verifications of snapshots, of damaged ones too. */
import { expect, test } from 'vitest';
import { rig } from './cloud.ts';
import { paused, SUPERUSER, withSubject } from './faults.ts';
import { KEEP } from './forks.ts';
import { namespaceOf, podOf, removeAll, settle } from './probe.ts';

const SQL = `${SUPERUSER} --dbname=tsdb --tuples-only --no-align`;

/** Damages a page of the table on the disk that PostgreSQL has no more reason to write. */
const DAMAGE = `set -e
${SQL} --command='vacuum (freeze) suite' --command=checkpoint
file=$(${SQL} --command="select pg_relation_filepath('suite')")
data=$(${SQL} --command='show data_directory')
printf damaged | dd of="$data/$file" bs=1 seek=20000 conv=notrunc`;

test('a snapshot of damaged data fails its verification, and its service goes on', () =>
  withSubject(async (subject) => {
    const spec = await subject.newSpec();
    await settle(subject, spec);
    await subject.insertRows(spec, 10_000);
    const pod = {
      metadata: { namespace: namespaceOf(subject.projectId), name: podOf(spec.id, 0) },
    };
    await rig().exec(pod, DAMAGE);
    const { backups } = subject.engine;
    await backups.keep(spec.id, KEEP);
    // A paused service is verified too.
    await settle(subject, paused(spec));
    const verification = await backups.verify(
      spec,
      async (_, work) => void (await work(() => undefined)),
      new AbortController().signal,
    );
    expect(verification).toMatchObject({
      succeeded: false,
      problem: expect.stringMatching(/^check tables and indexes: heap table "tsdb\..*\.suite"/),
    });
    expect((await backups.describe(spec.id)).last_verification).toEqual(verification);
    await settle(subject, spec);
    await removeAll(subject, spec.id);
    expect(await subject.leftovers(spec.id)).toEqual([]);
  }));
