/** The engine for Kubernetes keeps the promises that its capabilities allow. */
import { describe, expect, test } from 'vitest';
import { operator, rig } from './cloud.ts';
import { capabilitiesOf, PROMISES, STATEMENT_PROMISES } from './probe.ts';
import { createKubernetesSubject, MAJOR } from './subject.ts';

/** Promises that no capability speaks of, and why they are not kept here (docs/kubernetes.md). */
const NOT_KEPT: ReadonlyMap<string, string> = new Map([
  [
    'lost data is not replaced by an empty database, and is used again when it is back',
    'it brings a volume back, which Kubernetes has deleted',
  ],
  [
    'an upgrade keeps the data in a newer version, and its undo brings the former data back',
    'data stays in its major version',
  ],
  [
    'a primary is recorded before it is one',
    'CloudNativePG chooses the primary, and it is recorded once it is seen',
  ],
  ['another recorded primary is obeyed', 'the same'],
  [
    'a fork at a point in time has the data of that time',
    'it needs an object store and a minute; archive.ts has tests of it',
  ],
  [
    'snapshots are listed newest first, within their window',
    'without an object store, no moment between two snapshots can be reached',
  ],
  ['a snapshot is taken only after a write', 'CloudNativePG does not say whether there was one'],
  [
    'the plan of a read replica set has the steps that are made',
    'the node has no room for two large nodes beside a service; a test of sets has small ones',
  ],
  [
    'the standbys follow after a failover',
    'whether a standby streams is not read; a test of faults asks PostgreSQL',
  ],
]);

/** Promises with services so large that the node has room for one of them. */
const LARGE: readonly string[] = [
  'the plan of a change has the steps that are made',
  'a stop and a resize keep the data',
  'the plan of replicas has the steps that are made',
];
/** One promise of so many has no tag `slow`. */
const SAMPLE_OF = 3;
const SIZE = { cpuMillis: 500, memoryGbs: 1 } as const;

describe('promises', () => {
  const settings = {
    code: 'kube',
    domain: null,
    boundsCpu: false,
    images: { [MAJOR]: '' },
    extensions: {},
    poolerImage: '',
  };
  const capabilities = capabilitiesOf(settings, { snapshots: true, archive: null }, null);
  const names = new Set(PROMISES.map(({ name }) => name));
  for (const name of [...NOT_KEPT.keys(), ...LARGE])
    if (!names.has(name)) throw new Error(`there is no promise ${name}`);
  for (const [position, { name, applies, check }] of [
    ...PROMISES,
    ...STATEMENT_PROMISES,
  ].entries()) {
    if (applies?.({ capabilities }) === false || NOT_KEPT.has(name)) continue;
    const isLarge = LARGE.includes(name);
    const tags = ['promise', ...(position % SAMPLE_OF === 0 ? [] : ['slow'])];
    test(name, { concurrent: !isLarge, tags }, async () => {
      const options = isLarge ? { size: SIZE } : {};
      const subject = await createKubernetesSubject(rig(), operator().api, options);
      await check(subject);
      await subject.destroy();
      expect(subject.engine.capabilities.engine).toBe('kubernetes');
    });
  }
});
