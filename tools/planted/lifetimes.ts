/** Defects of services that come and go: their ends, and the forks of branches. */
import type { Plant } from './plant.ts';

const SERVER = 'packages/server/src';

export const LIFETIME_PLANTS: readonly Plant[] = [
  {
    name: 'prod-expires',
    breaks: ['P12', 'delete'],
    effect: 'a PROD service whose row has an end is deleted by itself',
    edits: [
      {
        file: `${SERVER}/reconcile/expiry.ts`,
        from: "  if (protectionOfRow(service) === 'PROD') {\n",
        to: "  if (protectionOfRow(service) === 'PROD' && purge) {\n",
      },
    ],
    caughtBy: {
      gate: 'A',
      tests: [{ file: 'packages/server/test/lifetimes.test.ts', name: 'never expires' }],
    },
  },
  {
    name: 'purge-brought-forward',
    breaks: ['P12', 'purge'],
    effect: 'a developer has the data of a service removed for good that another key made',
    edits: [
      {
        file: `${SERVER}/domain/service/lifetime.ts`,
        from: '  if (end !== null && purges) refusePurge(key, service, end);\n',
        to: '',
      },
    ],
    caughtBy: {
      gate: 'A',
      tests: [{ file: `${SERVER}/domain/service/lifetime.test.ts` }],
    },
  },
  {
    name: 'forks-of-a-key-unbounded',
    breaks: ['keys and roles', 'fork'],
    effect: 'a key makes more services than it may have',
    edits: [
      {
        file: `${SERVER}/services/lifetimes.ts`,
        from: '  if (used + more <= most) return;\n',
        to: '  if (used + more <= most * 1000) return;\n',
      },
    ],
    caughtBy: {
      gate: 'A',
      tests: [{ file: 'packages/server/test/lifetimes.test.ts', name: 'a key bounds' }],
    },
  },
  {
    name: 'reset-loses-password',
    breaks: ['passwords', 'fork'],
    effect: 'a fork that is reset has the password of its parent',
    edits: [
      {
        file: `${SERVER}/engine/local/topology/reset.ts`,
        from: '    return verifier === null ? REMOVE_PASSWORD : alterPassword(verifier);\n',
        to: "    return verifier === null ? REMOVE_PASSWORD : 'select 1';\n",
      },
    ],
    caughtBy: {
      gate: 'A',
      tests: [{ file: 'packages/server/test/reset.test.ts', name: 'keeps the password' }],
    },
  },
  {
    name: 'replaced-data-stays',
    breaks: ['fork', 'backups'],
    effect: 'the data that a reset has replaced stays for the time of a restore',
    edits: [
      {
        file: `${SERVER}/engine/local/topology/upgrade.ts`,
        from: '  const former = reset === undefined ? place : `${place}${REPLACED}`;\n',
        to: '  const former = reset === undefined ? place : `${place}${REPLACED}-`;\n',
      },
    ],
    caughtBy: {
      gate: 'A',
      tests: [{ file: 'packages/server/test/reset.test.ts', name: 'to now' }],
    },
  },
  {
    name: 'branch-fork-stays',
    breaks: ['delete'],
    effect: 'the fork of a branch that is gone stays',
    edits: [
      {
        file: 'packages/cli/src/commands/checkout.ts',
        from: '    if (await hasBranch(branch)) continue;\n',
        to: '    if (branch.length > 0 || (await hasBranch(branch))) continue;\n',
      },
    ],
    caughtBy: {
      gate: 'A',
      tests: [{ file: 'packages/cli/test/checkout.test.ts', name: 'each branch' }],
    },
  },
  {
    name: 'usage-of-others',
    breaks: ['keys and roles'],
    effect: 'a key reads what the services of all projects take',
    edits: [
      {
        file: `${SERVER}/store/usage.ts`,
        from: "    .where('services.project_id', '=', projectId)\n",
        to: "    .where('services.project_id', 'is not', null)\n",
      },
    ],
    caughtBy: {
      gate: 'A',
      tests: [{ file: 'packages/server/test/sleep.test.ts', name: 'usage of each service' }],
    },
  },
  {
    name: 'usage-without-copies',
    breaks: ['quotas'],
    effect: 'what a service takes lacks the disk of its replicas',
    edits: [
      {
        file: `${SERVER}/domain/service/usage.ts`,
        from: 'storage.owned_mb + (servers - 1) * storage.total_mb',
        to: 'storage.owned_mb',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/domain/service/usage.test.ts` }] },
  },
];
