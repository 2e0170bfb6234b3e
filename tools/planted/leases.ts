/** Defects of leases: copies of a service that are taken for tests. */
import type { Plant } from './plant.ts';

const SERVER = 'packages/server/src';
const TESTS = 'packages/server/test/leases.test.ts';
const FAULTS = 'packages/server/test/leases-faults.test.ts';

export const LEASE_PLANTS: readonly Plant[] = [
  {
    name: 'lease-lacks-commit',
    breaks: ['leases'],
    effect: 'a lease is a warm fork from before the last commit of its service',
    edits: [
      {
        file: `${SERVER}/store/leased-servers.ts`,
        from: "    .where('leased_servers.committed', '=', committed)\n",
        to: "    .where('leased_servers.committed', '<>', `-${committed}`)\n",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: TESTS, name: 'lacks a commit' }] },
  },
  {
    name: 'lease-of-another-key-extended',
    breaks: ['keys and roles', 'leases'],
    effect: 'a fork_only key extends the lease of another key',
    edits: [
      {
        file: 'packages/contract/src/permissions.ts',
        from: '  if (key.forkOnly)\n    return (\n',
        to: '  if (key.forkOnly && takenBy === null)\n    return (\n',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: TESTS, name: 'a fork-only key' }] },
  },
  {
    name: 'lease-of-others-lost',
    breaks: ['leases', 'keys and roles', 'purge'],
    effect: 'a developer has the data of a lease removed for good that another key took',
    edits: [
      {
        file: `${SERVER}/services/leases.ts`,
        from: "    for (const lease of before) refuseOfOthers(caller, lease, 'return');\n",
        to: '',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: TESTS, name: 'a developer does not return' }] },
  },
  {
    name: 'lease-reaches-others',
    breaks: ['keys and roles', 'leases'],
    effect: 'the role of a lease connects to the databases of other leases',
    edits: [
      {
        file: `${SERVER}/engine/postgres/sessions/leased-databases.ts`,
        from: 'could.\n    await client.query(`revoke all on database ${name} from public`);\n',
        to: 'could.\n',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: TESTS, name: 'shared server' }] },
  },
  {
    name: 'lease-less-private',
    breaks: ['leases'],
    effect:
      'a lease is in a server that clients reach whom the allow list of its service keeps out',
    edits: [
      {
        file: `${SERVER}/store/leased-databases.ts`,
        from: '    .where(MAY_BE_SHARED)\n',
        to: '    .where(sql<boolean>`${MAY_BE_SHARED} is not null`)\n',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: FAULTS, name: 'as private' }] },
  },
  {
    name: 'lease-of-lost-data',
    breaks: ['leases'],
    effect: 'a lease has data that its service had before a reset',
    edits: [
      {
        file: `${SERVER}/engine/local/leasing.ts`,
        from: " || ' ' || extract(epoch from backend_start)\n",
        to: '\n',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: FAULTS, name: 'before a reset' }] },
  },
  {
    name: 'lease-of-others-shortened',
    breaks: ['leases', 'keys and roles', 'purge'],
    effect: 'a developer has the lease of another key end at once',
    edits: [
      {
        file: `${SERVER}/services/leased-databases.ts`,
        from: '  for (const lease of databases) refuseSooner(caller, lease, end);\n',
        to: '',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: FAULTS, name: 'and ends no other' }] },
  },
];
