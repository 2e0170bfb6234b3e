/** Defects of data: forks, backups, repositories, moves, deletes, imports. */
import type { Plant } from './plant.ts';

const SERVER = 'packages/server/src';
const BACKUP = `${SERVER}/engine/local/backup`;

export const DATA_PLANTS: readonly Plant[] = [
  {
    name: 'later-snapshot',
    breaks: ['PITR fork'],
    effect: 'a fork at a point in time begins with a snapshot of after it',
    edits: [
      {
        file: `${BACKUP}/snapshots.ts`,
        from: 'takenMs <= targetMs) ?? null',
        to: 'takenMs <= targetMs) ?? snapshots[0] ?? null',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${BACKUP}/snapshots.test.ts` }] },
  },
  {
    name: 'gap-not-shown',
    breaks: ['backups', 'PITR fork'],
    effect: 'a window of backups includes moments that cannot be restored',
    edits: [
      {
        file: `${BACKUP}/window.ts`,
        from: 'return gap === null || latestMs >= beforeMs ? []',
        to: 'return gap === null || latestMs <= beforeMs ? []',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${BACKUP}/snapshots.test.ts` }] },
  },
  {
    name: 'points-before-growth-removed',
    breaks: ['backups'],
    effect: 'a flood of WAL removes every point in time from before it',
    edits: [
      {
        file: `${BACKUP}/keeper.ts`,
        from: 'older.filter((snapshot) => snapshot.id !== kept?.snapshot)',
        to: 'older',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${BACKUP}/keeper.test.ts` }] },
  },
  {
    name: 'no-snapshot-after-gap',
    breaks: ['backups'],
    effect: 'after lost WAL no new snapshot is taken, and nothing later can be restored',
    edits: [
      {
        file: `${BACKUP}/keeper.ts`,
        from: 'return (await reach(paths, newest)).gap !== null;',
        to: 'return (await reach(paths, newest)).files === 0;',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${BACKUP}/keeper.test.ts` }] },
  },
  {
    name: 'pruned-under-a-fork',
    breaks: ['fork', 'backups'],
    effect: 'backups are pruned while a fork is made of them',
    edits: [
      {
        file: `${BACKUP}/keeper.ts`,
        from: 'if ((await provisioningForksOf(keeper, id)).length > 0 || held.has(id)) return;',
        to: 'if (held.has(id)) return;',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${BACKUP}/keeper.test.ts` }] },
  },
  {
    name: 'fork-beyond-repository',
    breaks: ['fork', 'repositories'],
    effect: 'a fork is promised from a repository that lacks its WAL',
    edits: [
      {
        file: `${SERVER}/domain/service/fork-source.ts`,
        from: 'ms < earliestMs || ms > safeToMs',
        to: 'ms < earliestMs',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/domain/service/fork-source.test.ts` }] },
  },
  {
    name: 'verifications-starve',
    breaks: ['verification'],
    effect: 'a user who asks for verifications holds up those that are due',
    edits: [
      {
        file: `${SERVER}/reconcile/verifier.ts`,
        from: 'if (waiting.some(({ requested_by: by }) => by === HOWDAH)) return;',
        to: 'if (waiting.length > 0) return;',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/reconcile/verifier.test.ts` }] },
  },
  {
    name: 'certificate-of-damage',
    breaks: ['verification'],
    effect: 'a backup that is damaged gets a restore certificate',
    edits: [
      {
        file: `${SERVER}/engine/restored-backup.ts`,
        from: 'if (!succeeded) return { verification, restored: null };',
        to: '',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/reconcile/certificates.test.ts` }] },
  },
  {
    name: 'passphrase-missing',
    breaks: ['repositories', 'P8'],
    effect: 'backups in a repository are not encrypted',
    edits: [
      {
        file: `${SERVER}/repository/options.ts`,
        from: "'repo1-cipher-type': 'aes-256-cbc'",
        to: "'repo1-cipher-type': 'none'",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/repository/options.test.ts` }] },
  },
  {
    name: 'shortest-retention',
    breaks: ['undelete', 'repositories'],
    effect: 'a deleted service can be restored for a shorter time than its backups are kept',
    edits: [
      {
        file: `${SERVER}/reconcile/kept-backups.ts`,
        from: 'b.retention_days - a.retention_days',
        to: 'a.retention_days - b.retention_days',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/reconcile/kept-backups.test.ts` }] },
  },
  {
    name: 'delete-is-purge',
    breaks: ['delete', 'undelete'],
    effect: 'the data of a deleted service is removed at once',
    edits: [
      {
        file: `${SERVER}/domain/service/removal.ts`,
        from: 'return deleting && (isOver || purge || kept !== null);',
        to: 'return deleting || isOver || purge || kept !== null;',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/domain/service/removal.test.ts` }] },
  },
  {
    name: 'purge-waits',
    breaks: ['purge'],
    effect: 'a purged service keeps its data until the time for a restore is over',
    edits: [
      {
        file: `${SERVER}/domain/service/removal.ts`,
        from: '(isOver || purge || kept !== null)',
        to: '(isOver || kept !== null)',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/domain/service/removal.test.ts` }] },
  },
  {
    name: 'switch-too-early',
    breaks: ['P3', 'moves'],
    effect: 'a move hands over to a copy that lacks the last writes',
    edits: [
      {
        file: `${SERVER}/domain/service/move-progress.ts`,
        from: 'seen.replayed > seen.end',
        to: 'seen.replayed >= seen.end',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/domain/service/move-progress.test.ts` }] },
  },
  {
    name: 'backoff-without-end',
    breaks: ['P2'],
    effect: 'a step that failed often is tried again after hours',
    edits: [
      {
        file: `${SERVER}/domain/service/backoff.ts`,
        from: 'Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS',
        to: 'Math.max(FIRST_BACKOFF_MS, FIRST_BACKOFF_MS',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/domain/service/backoff.test.ts` }] },
  },
  {
    name: 'change-forgotten',
    breaks: ['P1'],
    effect: 'a change that arrives while a service is reconciled is not looked at',
    edits: [
      {
        file: `${SERVER}/store/claims.ts`,
        from: 'dueAt === null || (again !== null && again < dueAt) ? again : dueAt',
        to: 'dueAt === null || (again !== null && again > dueAt) ? again : null',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/store/claims.test.ts` }] },
  },
  {
    name: 'lost-claim-writes',
    breaks: ['P1'],
    effect: 'a reconciler that lost its claim overwrites the results of its successor',
    edits: [
      {
        file: `${SERVER}/store/claims.ts`,
        from: 'service === undefined || service.lease_token !== token',
        to: 'service === undefined || service.lease_token === null',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/store/claims.test.ts` }] },
  },
  {
    name: 'flush-shared-with-the-past',
    breaks: ['P1', 'create'],
    effect: 'a service is READY before its data is on the disk',
    edits: [
      {
        file: `${SERVER}/engine/local/host/flush.ts`,
        from: 'next ??= current.then(begin, begin);\n    return next;',
        to: 'return next ?? current.then(() => undefined);',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/engine/local/host/flush.test.ts` }] },
  },
  {
    name: 'flush-removed',
    breaks: ['P1', 'create'],
    effect: 'a service that is READY is gone after a cut of power',
    edits: [
      {
        file: `${SERVER}/engine/local/host/flush.ts`,
        from: "  await run('sync', ",
        to: "  if (directory === '/') await run('sync', ",
      },
    ],
    caughtBy: {
      gate: 'B',
      tests: [{ file: 'packages/server/test/power-cut.test.ts', name: 'ext4' }],
      reason: 'only a simulated cut of power shows what was not flushed, and it takes minutes',
    },
  },
  {
    name: 'updates-without-key',
    breaks: ['import'],
    effect: 'an import applies updates of the primary key to the wrong row',
    edits: [
      {
        file: 'packages/cli/src/transfer/decode.ts',
        from: "  const old = reader.tuple();\n  return { kind: 'update', relation, old, row",
        to: "  const old = null;\n  reader.tuple();\n  return { kind: 'update', relation, old, row",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: 'packages/cli/src/transfer/decode.test.ts' }] },
  },
  {
    name: 'dollar-quotes-end-anywhere',
    breaks: ['import'],
    effect: 'an import takes a semicolon in the body of a function for the end of its statement',
    edits: [
      {
        file: 'packages/cli/src/transfer/script/scan.ts',
        from: "quote = { kind: 'dollar', tag: token };",
        to: "quote = { kind: 'dollar', tag: '$' };",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: 'packages/cli/src/transfer/script/scan.test.ts' }] },
  },
  {
    name: 'passwords-of-roles-imported',
    breaks: ['import'],
    effect: 'an import runs statements that change roles, as they are in a dump',
    edits: [
      {
        file: 'packages/cli/src/transfer/script/rules.ts',
        from: "i('(?:ALTER|DROP) (?:ROLE|USER|GROUP) (?!MAPPING)'",
        to: "i('DROP (?:ROLE|USER|GROUP) (?!MAPPING)'",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: 'packages/cli/src/transfer/script/rules.test.ts' }] },
  },
  {
    name: 'every-extension-trusted',
    breaks: ['extensions'],
    effect: 'owners of databases may create extensions whose scripts nobody has read',
    edits: [
      {
        file: `${SERVER}/domain/postgres/extension-rules.ts`,
        from: "export const TRUSTED = ['vector', 'pg_stat_statements'] as const;",
        to: "export const TRUSTED = ['vector', 'pg_stat_statements', 'hypopg'] as const;",
      },
    ],
    caughtBy: {
      gate: 'A',
      tests: [{ file: `${SERVER}/engine/local/postgres/extension-files.test.ts` }],
    },
  },
  {
    name: 'unfinished-is-provisioned',
    breaks: ['adopt', 'create'],
    effect: 'a service whose create was interrupted counts as one with data',
    edits: [
      {
        file: `${SERVER}/engine/local/host/marker.ts`,
        from: "'provisioned' in marker ? marker.provisioned",
        to: "'provisioned' in marker ? marker.provisioned !== null",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/engine/local/host/marker.test.ts` }] },
  },
];
