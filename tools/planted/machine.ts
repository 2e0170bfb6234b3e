/** Defects of the servers of a machine: creates, networks, poolers, quotas, the disk. */
import type { Plant } from './plant.ts';

const LOCAL = 'packages/server/src/engine/local';
const POSTGRES = 'packages/server/src/engine/postgres';

export const MACHINE_PLANTS: readonly Plant[] = [
  {
    name: 'lost-data-made-again',
    breaks: ['P1', 'create'],
    effect: 'a service whose disk is not mounted is replaced by an empty one',
    edits: [
      {
        file: `${POSTGRES}/decisions/decide.ts`,
        from: 'if (recovery !== null || !(provisioned || seen.provisioned)) return null;',
        to: 'if (recovery !== null || !seen.provisioned) return null;',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/decisions/decide.test.ts` }] },
  },
  {
    name: 'foreign-directory-taken',
    breaks: ['create'],
    effect: 'a directory that Howdah did not make is used as the data of a service',
    edits: [
      {
        file: `${POSTGRES}/decisions/decide.ts`,
        from: "if (directory === 'foreign') {",
        to: "if (directory === 'foreign' && spec.provisioned) {",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/decisions/decide-settles.test.ts` }] },
  },
  {
    name: 'disallowed-sessions-stay',
    breaks: ['allow lists'],
    effect: 'sessions of clients that a changed allow list excludes go on',
    edits: [
      {
        file: `${POSTGRES}/decisions/decide.ts`,
        from: "  if (seen.disallowedSessions > 0) return { kind: 'endSessions' };\n",
        to: '',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/decisions/decide.test.ts` }] },
  },
  {
    name: 'pooler-not-reloaded',
    breaks: ['pooler'],
    effect: 'a pooler keeps its old limits after a resize',
    edits: [
      {
        file: `${POSTGRES}/decisions/decide.ts`,
        from: 'if (!seen.watched || !seen.current)',
        to: 'if (!seen.watched && !seen.current)',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/decisions/decide.test.ts` }] },
  },
  {
    name: 'upgrade-of-paused',
    breaks: ['upgrade'],
    effect: 'the former data of an upgraded service is used instead of the new data',
    edits: [
      {
        file: `${POSTGRES}/decisions/decide.ts`,
        from: "if (seen.upgrade === 'made' || upgrade.undo)",
        to: "if (seen.upgrade === 'made' && upgrade.undo)",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/decisions/decide-upgrade.test.ts` }] },
  },
  {
    name: 'vpc-on-the-machine',
    breaks: ['VPC'],
    effect: 'a service in a VPC listens in the network of the machine',
    edits: [
      {
        file: `${LOCAL}/network/listener.ts`,
        from: 'namespace: namespaceOf(prefix, vpc.id), allowedNetworks: null',
        to: 'namespace: null, allowedNetworks: null',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${LOCAL}/network/listener.test.ts` }] },
  },
  {
    name: 'peers-overlap',
    breaks: ['peering', 'VPC'],
    effect: 'VPCs with the same addresses are peered, and packets reach the wrong one',
    edits: [
      {
        file: 'packages/server/src/lib/cidr.ts',
        from: 'return contains(a, b) || contains(b, a);',
        to: 'return contains(a, b);',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: 'packages/server/src/lib/cidr.test.ts' }] },
  },
  {
    name: 'logins-outlive-a-password',
    breaks: ['passwords'],
    effect: 'a login that began with the former password ends after a new one, and sets another',
    edits: [
      {
        file: `${LOCAL}/postgres/logins.ts`,
        from: "for (const { pid } of logins) signal(pid, 'SIGTERM');",
        to: 'logins.length = 0;',
      },
    ],
    caughtBy: {
      gate: 'A',
      tests: [{ file: 'packages/server/test/hostile-sql.test.ts', name: 'a login that began' }],
    },
  },
  {
    name: 'hostile-writes-unlimited',
    breaks: ['P13', 'quotas'],
    effect: 'one tenant writes as fast as the disk can, and all others wait',
    edits: [
      {
        file: `${LOCAL}/host/share-out.ts`,
        from: 'const isAlone = active.every((one) => one === writer);',
        to: 'const isAlone = true;',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${LOCAL}/host/share-out.test.ts` }] },
  },
  {
    name: 'cpu-bound-of-service-ignored',
    breaks: ['resize'],
    effect: 'a service that the operator has exempted from the bound of its region stays bound',
    edits: [
      {
        file: `${LOCAL}/host/cpu-bound.ts`,
        from: '(cpuBound ?? boundsCpu)',
        to: '(cpuBound || boundsCpu)',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${LOCAL}/host/cpu-bound.test.ts` }] },
  },
  {
    name: 'quota-not-enforced',
    breaks: ['P13', 'quotas'],
    effect: 'a service over its quota goes on writing',
    edits: [
      {
        file: `${LOCAL}/host/quota-rules.ts`,
        from: 'isReadOnly: isOver || (isReadOnly && usedBytes > limitBytes * AGAIN)',
        to: 'isReadOnly: isOver && (isReadOnly || usedBytes > limitBytes + marginBytes)',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${LOCAL}/host/quota-rules.test.ts` }] },
  },
  {
    name: 'reserve-kept',
    breaks: ['P14'],
    effect: 'on a full disk the reserve is kept, and the metadata database stops',
    edits: [
      {
        file: `${LOCAL}/host/reserve.ts`,
        from: "usedPercent >= RESERVE_RELEASE_PERCENT ? 'release' : 'keep'",
        to: "usedPercent > 100 ? 'release' : 'keep'",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${LOCAL}/host/reserve.test.ts` }] },
  },
  {
    name: 'innocent-wal-removed',
    breaks: ['P14', 'backups'],
    effect: 'on a full disk services that did not grow lose their archive first',
    edits: [
      {
        file: `${LOCAL}/backup/last-resort.ts`,
        from: 'Number(grown.has(b.id)) - Number(grown.has(a.id))',
        to: 'Number(grown.has(a.id)) - Number(grown.has(b.id))',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${LOCAL}/backup/last-resort.test.ts` }] },
  },
  {
    name: 'log-blocks-the-loop',
    breaks: ['P9b'],
    effect: 'no other call is answered while a page of a large log is read',
    edits: [
      {
        file: `${POSTGRES}/logs.ts`,
        from: 'const LINES_PER_PAGE = 200_000;',
        to: 'const LINES_PER_PAGE = 200_000_000;',
      },
      {
        file: `${POSTGRES}/logs.ts`,
        from: 'const READ_BYTES_PER_PAGE = 16 * 1024 * 1024;',
        to: 'const READ_BYTES_PER_PAGE = 16 * 1024 * 1024 * 1024;',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/logs.test.ts` }] },
  },
  {
    name: 'restart-ends-databases',
    breaks: ['P11'],
    effect: 'a start of the control plane restarts all servers',
    edits: [
      {
        file: `${LOCAL}/postgres/server.ts`,
        from: "restarts: Number(valueOf(RESTARTS_SETTING) ?? '0')",
        to: "restarts: Number(valueOf(SIZE_SETTING) ?? '0')",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${LOCAL}/postgres/server.test.ts` }] },
  },
];
