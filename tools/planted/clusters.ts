/** Defects of clusters and read replica sets: fencing, failover, gateways, lag. */
import type { Plant } from './plant.ts';

const LOCAL = 'packages/server/src/engine/local';
const POSTGRES = 'packages/server/src/engine/postgres';
const TOPOLOGY = `${LOCAL}/topology`;

export const CLUSTER_PLANTS: readonly Plant[] = [
  {
    name: 'no-fence',
    breaks: ['P5', 'fencing'],
    effect: 'a primary that hangs accepts writes again beside its successor',
    edits: [
      {
        file: `${LOCAL}/postgres/server.ts`,
        from: '  const server = await findServer(paths);\n  if (server !== null) signal',
        to: '  const server = await findServer(paths);\n  if (!server) return true;\n  signal',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${LOCAL}/postgres/fence.test.ts` }] },
  },
  {
    name: 'second-writer-stays',
    breaks: ['P5', 'fencing'],
    effect: 'a former primary that comes back is not stopped',
    edits: [
      {
        file: `${POSTGRES}/decisions/decide-ha.ts`,
        from: "others.find(({ data, server }) => data === 'primary' && server !== null)",
        to: "others.find(({ data, server }) => data === 'primary' && server === null)",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/decisions/decide-ha.test.ts` }] },
  },
  {
    name: 'no-quorum-check',
    breaks: ['P3', 'failover'],
    effect: 'a standby takes over although it may lack an acknowledged write',
    edits: [
      {
        file: `${POSTGRES}/decisions/failover.ts`,
        from: 'quorum.members.length - quorum.count + 1',
        to: 'quorum.members.length - quorum.count',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/decisions/failover.test.ts` }] },
  },
  {
    name: 'no-check',
    breaks: ['P3', 'failover'],
    effect: 'any standby takes over, whatever WAL it lacks',
    edits: [
      {
        file: `${POSTGRES}/decisions/failover.ts`,
        from: '  if (sync > 0) {\n',
        to: '  if (sync > candidates.length) {\n',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/decisions/failover.test.ts` }] },
  },
  {
    name: 'wrong-standby',
    breaks: ['P3', 'failover'],
    effect: 'the standby with the least WAL takes over',
    edits: [
      {
        file: `${POSTGRES}/decisions/failover.ts`,
        from: 'Number(b.received - a.received)',
        to: 'Number(a.received - b.received)',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/decisions/failover.test.ts` }] },
  },
  {
    name: 'unlimited-loss',
    breaks: ['P6', 'failover'],
    effect: 'an asynchronous standby takes over however far it is behind',
    edits: [
      {
        file: `${POSTGRES}/decisions/failover.ts`,
        from: 'if (lostBytes > BigInt(maxLostBytes))',
        to: 'if (lostBytes < BigInt(maxLostBytes) && maxLostBytes < 0)',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/decisions/failover.test.ts` }] },
  },
  {
    name: 'deaf',
    breaks: ['P4', 'failover'],
    effect: 'the death of a server, or its silence, is found in the next round only',
    edits: [
      {
        file: `${POSTGRES}/sessions/monitor.ts`,
        from: '?.client !== client) return;\n    drop(state, id);\n    changed(id);\n',
        to: '?.client === client) drop(state, id);\n',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/sessions/monitor.test.ts` }] },
  },
  {
    name: 'deaf-to-hangs',
    breaks: ['P4', 'failover'],
    effect: 'a server that does not answer is not reported',
    edits: [
      {
        file: `${POSTGRES}/sessions/monitor.ts`,
        from:
          'onOver: () => {\n' +
          '      beginSilence(state, id, patience);\n      changed(id);\n    },',
        to: 'onOver: () => undefined,',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/sessions/monitor.test.ts` }] },
  },
  {
    name: 'slow-is-dead',
    breaks: ['P4', 'failover'],
    effect: 'a server that is slow for a moment is killed',
    edits: [
      {
        file: `${POSTGRES}/decisions/decide-ha.ts`,
        from: 'silentMs !== null && (server.frozen || silentMs >= HANGS_AFTER_MS)',
        to: '(server.frozen || silentMs !== null)',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/decisions/decide-ha.test.ts` }] },
  },
  {
    name: 'switchover-of-nobody',
    breaks: ['switchover'],
    effect: 'a requested switchover never begins',
    edits: [
      {
        file: `${POSTGRES}/decisions/decide-ha.ts`,
        from: 'if (ha.leave === primary.n) return',
        to: 'if (ha.leave === successor.n) return',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/decisions/decide-ha.test.ts` }] },
  },
  {
    name: 'consumer-ahead',
    breaks: ['failover', 'switchover'],
    effect: 'a consumer of a failover slot gets writes that no standby has',
    edits: [
      {
        file: `${POSTGRES}/replication/replication-conf.ts`,
        from: '(count > 0 ? members : streaming)',
        to: '(count > 0 ? [] : streaming)',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/replication/failover-slots.test.ts` }] },
  },
  {
    name: 'resize-without-restart',
    breaks: ['resize'],
    effect: 'after a resize to less, the primary of a cluster keeps its former size',
    edits: [
      {
        file: `${POSTGRES}/decisions/decide-ha.ts`,
        from: "(size === 'larger' || (size !== 'current' && others.length === 0))",
        to: "size !== 'current' && others.length === 0",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/decisions/decide-ha.test.ts` }] },
  },
  {
    name: 'gateway-not-routed',
    breaks: ['gateway'],
    effect: 'after a failover clients still reach the former primary',
    edits: [
      {
        file: `${POSTGRES}/decisions/decide-ha.ts`,
        from: 'if (gateway.routesToPort !== port)',
        to: 'if (gateway.routesToPort === null)',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/decisions/decide-ha.test.ts` }] },
  },
  {
    name: 'pause-leaves-members',
    breaks: ['stop and start'],
    effect: 'a paused cluster keeps its standbys running',
    edits: [
      {
        file: `${POSTGRES}/decisions/decide-ha.ts`,
        from: ': ClusterSeen,\n): HaStep {\n  const running = [primary, ...others]',
        to: ': ClusterSeen,\n): HaStep {\n  const running = [primary, ...others.slice(1)]',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/decisions/decide-ha.test.ts` }] },
  },
  {
    name: 'no-lag-limit',
    breaks: ['read replica sets'],
    effect: 'a node of a read replica set gets connections however far it is behind',
    edits: [
      {
        file: `${POSTGRES}/replication/lag.ts`,
        from: 'bytes <= limit.bytes && seconds <= limit.seconds',
        to: 'bytes <= limit.bytes || seconds <= limit.seconds',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/replication/lag.test.ts` }] },
  },
  {
    name: 'lag-not-judged',
    breaks: ['read replica sets'],
    effect: 'the measured lag of a node is not compared with the limit',
    edits: [
      {
        file: `${POSTGRES}/decisions/node-rules.ts`,
        from: 'measured.lag !== null && !isWithin(measured.lag, limit)',
        to: 'measured.lag === null && !measured.streaming',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${TOPOLOGY}/read-replicas/judge.test.ts` }] },
  },
  {
    name: 'no-drain',
    breaks: ['read replica sets'],
    effect: 'a node is restarted while the gateway still routes to it',
    edits: [
      {
        file: `${POSTGRES}/decisions/node-rules.ts`,
        from: "  if (isWithheld) return no('about to be restarted');\n",
        to: '',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${TOPOLOGY}/read-replicas/judge.test.ts` }] },
  },
  {
    name: 'writer-serves',
    breaks: ['P5', 'read replica sets'],
    effect: 'readers reach a node that accepts writes and has a past of its own',
    edits: [
      {
        file: `${POSTGRES}/decisions/decide-set.ts`,
        from: "server !== null && (takesWrites || data === 'primary')",
        to: "server !== null && takesWrites && data === 'primary'",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${POSTGRES}/decisions/decide-set.test.ts` }] },
  },
  {
    name: 'reports-without-feedback',
    breaks: ['read replica sets'],
    effect: 'a VACUUM of the primary cancels reports on a read replica set',
    edits: [
      {
        file: 'packages/server/src/domain/replica-set.ts',
        from: "hot_standby_feedback: 'on',",
        to: "hot_standby_feedback: 'off',",
      },
    ],
    caughtBy: {
      gate: 'A',
      tests: [{ file: 'packages/server/src/domain/replica-set.test.ts' }],
    },
  },
  {
    name: 'primary-replaced-as-former',
    breaks: ['Kubernetes', 'switchover'],
    effect: 'the pod of a primary on Kubernetes is removed while Kubernetes restarts it',
    edits: [
      {
        file: 'packages/server/src/engine/kubernetes/cluster/former-primary.ts',
        from: 'isHeldBack && n !== primary',
        to: 'isHeldBack',
      },
    ],
    caughtBy: {
      gate: 'A',
      tests: [{ file: 'packages/server/src/engine/kubernetes/cluster/former-primary.test.ts' }],
    },
  },
  {
    name: 'limit-waits-in-old-pooler',
    breaks: ['pooler'],
    effect: 'with PgBouncer 1.18, a client waits for two minutes at a limit that is reached',
    edits: [
      {
        file: 'packages/server/src/engine/local/proxy/pooler.ts',
        from: "where === 'each database' ? LOOKUP_BODY_IN_EACH_DATABASE : LOOKUP_BODY",
        to: "where === 'each database' ? LOOKUP_BODY : LOOKUP_BODY",
      },
    ],
    caughtBy: {
      gate: 'B',
      tests: [{ file: 'packages/server/test/pooler.test.ts', name: 'limit is reached' }],
      reason: 'the PgBouncer of Debian 13 is newer; the part system-here has that of the machine',
    },
  },
];
