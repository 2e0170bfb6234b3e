import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { decideHa, hangs, type HaStep } from './decide-ha.ts';
import { HA, spec as clusterSpec } from './decide-ha.testing.ts';
import { decideSet, type NodeSeen, type SetSeen } from './decide-set.ts';
import { pooler } from './decide.testing.ts';
import * as cluster from './simulate-cluster.ts';
import { afterSetStep, nodeAbsent, withRoutes } from './simulate-cluster.ts';
import { WELL } from './simulate.ts';

const THREE = {
  ...HA,
  servers: [0, 1, 2].map((n) => ({ n, port: 20001 + n })),
};
const anyHa = fc.constantFrom(
  THREE,
  { ...THREE, sync: 0 },
  { ...HA, leave: 0 },
  { ...HA, drill: 'failover' as const },
  { ...HA, drill: 'switchover' as const },
  { ...HA, servers: HA.servers.slice(0, 1), sync: 0 },
);
const anySpec = fc
  .record({ power: fc.constantFrom('running' as const, 'paused' as const), pooled: fc.boolean() })
  .map(({ power, pooled }) => clusterSpec({ power, pooler: pooled ? { port: 20009 } : null }));
/** The first server may still listen at the endpoint itself. */
const anyProcess = (n: number) =>
  fc.record({
    phase: fc.constantFrom('starting' as const, 'ready' as const, 'stopping' as const),
    size: fc.constantFrom(
      'current' as const,
      'smaller' as const,
      'larger' as const,
      'restart' as const,
    ),
    port: fc.constantFrom(20001 + n, n === 0 ? 20000 : 20001 + n),
    frozen: fc.boolean(),
    placed: fc.boolean(),
  });
const anyPooler = fc.option(
  fc.record({
    frozen: fc.boolean(),
    watched: fc.boolean(),
    current: fc.boolean(),
    placed: fc.boolean(),
    disallowedSessions: fc.nat({ max: 2 }),
  }),
);

const anyServer = (n: number): fc.Arbitrary<cluster.AssumedServer> =>
  fc
    .record({
      // The data of the recorded primary is there.
      data:
        n === 0
          ? fc.constantFrom('primary' as const, 'standby' as const)
          : fc.constantFrom('absent' as const, 'standby' as const, 'primary' as const),
      server: fc.option(anyProcess(n)),
      connected: fc.boolean(),
      silentMs: fc.option(fc.nat({ max: 30_000 })),
      filesCurrent: fc.boolean(),
      certificateCurrent: fc.boolean(),
      broken: fc.option(fc.constant('it is broken'), { freq: 3 }),
      upstream: fc.option(fc.nat({ max: 2 })),
    })
    .map((server) => {
      const process = server.data === 'absent' ? null : server.server;
      const runs = process !== null;
      return {
        ...server,
        n,
        server: process,
        connected: server.connected && runs,
        silentMs: runs ? server.silentMs : null,
        broken: n === 0 ? null : server.broken,
      };
    });

const anyCluster: fc.Arbitrary<Omit<cluster.AssumedCluster, 'ha'>> = fc.record({
  rules: fc
    .record({
      owned: fc.boolean(),
      provisioned: fc.boolean(),
      limited: fc.boolean(),
      pooler: anyPooler,
    })
    .map((rules) => ({ ...WELL, ...rules })),
  servers: fc
    .tuple(anyServer(0), anyServer(1), anyServer(2))
    .chain((servers) => fc.constantFrom(servers, servers.slice(0, 2), servers.slice(0, 1))),
  gateway: fc.record({
    running: fc.boolean(),
    routesToPort: fc.option(fc.constantFrom(20001, 20002)),
    placed: fc.boolean(),
    allowedNetworksCurrent: fc.boolean(),
  }),
  slots: fc.uniqueArray(fc.nat({ max: 3 })),
  quorum: fc.constantFrom({ count: 0, members: [] }, { count: 1, members: [1, 2] }),
  rehearsed: fc.boolean(),
});

const isSettled = (step: HaStep): boolean => step.kind === 'server' && step.step.kind === 'settled';

test('from any assumed cluster, step by step, it settles in the desired state', () => {
  fc.assert(
    fc.property(anySpec, anyHa, anyCluster, (wanted, ha, start) => {
      let now: cluster.AssumedCluster = { ...start, ha };
      const steps: string[] = [];
      for (;;) {
        const step = decideHa(wanted, now.ha, cluster.observed(wanted, now));
        if (isSettled(step)) break;
        steps.push(step.kind);
        if (steps.length === 60) expect.fail(steps.join('\n'));
        now = cluster.afterHaStep(now, step);
      }
      expect(now.rules.pooler).toEqual(
        wanted.pooler !== null && wanted.power === 'running' ? pooler : null,
      );
      expect(now.gateway.running).toBe(wanted.power === 'running');
      if (wanted.power === 'paused') {
        expect(now.servers.map(({ server }) => server)).toEqual(now.servers.map(() => null));
        return;
      }
      const { primary, servers } = now.ha;
      expect(now.gateway.routesToPort).toBe(20001 + primary);
      const numbers = now.servers.map(({ n }) => n);
      expect(numbers.toSorted((a, b) => a - b)).toEqual(servers.map(({ n }) => n));
      for (const server of now.servers)
        expect(server, steps.join('\n')).toMatchObject({
          data: server.n === primary ? 'primary' : 'standby',
          server: { phase: 'ready', size: 'current', port: 20001 + server.n, placed: true },
          connected: true,
          filesCurrent: true,
          certificateCurrent: true,
          upstream: server.n === primary ? null : primary,
          broken: null,
        });
      expect([now.ha.leave === primary, now.ha.drill, now.rehearsed]).toEqual([
        false,
        servers.length === 1 ? now.ha.drill : null,
        false,
      ]);
    }),
    { numRuns: 1000 },
  );
});

const anyNode = (n: number): fc.Arbitrary<NodeSeen> =>
  fc.tuple(anyServer(n), fc.boolean(), fc.boolean()).map(([server, takesWrites, serving]) => ({
    ...nodeAbsent(n),
    ...server,
    // A short silence ends by itself, and no step waits for its end.
    silentMs: hangs(server) ? server.silentMs : null,
    takesWrites,
    serving,
  }));

const anySet: fc.Arbitrary<SetSeen> = fc
  .record({
    directory: fc.constantFrom('absent' as const, 'ours' as const),
    nodes: fc.tuple(anyNode(1), anyNode(2)),
    gateway: fc.record({
      running: fc.boolean(),
      placed: fc.boolean(),
      allowedNetworksCurrent: fc.boolean(),
    }),
    primaryReady: fc.constant(true),
    slotsCurrent: fc.boolean(),
    pooler: anyPooler,
    owned: fc.boolean(),
  })
  .map((seen) =>
    seen.directory === 'ours' ? seen : { ...seen, nodes: [nodeAbsent(1), nodeAbsent(2)] },
  );

test('from any assumed read replica set, step by step, it settles in the desired state', () => {
  fc.assert(
    fc.property(anySpec, anySet, (wanted, start) => {
      let now = withRoutes(start);
      const steps: string[] = [];
      for (;;) {
        const step = decideSet(wanted, now);
        if (step.kind === 'pooler' && step.step.kind === 'settled') break;
        steps.push(step.kind);
        if (steps.length === 50) expect.fail(steps.join('\n'));
        now = afterSetStep(now, step);
      }
      expect(now.pooler).toEqual(
        wanted.pooler !== null && wanted.power === 'running' ? pooler : null,
      );
      expect(now.gateway.running).toBe(wanted.power === 'running');
      if (wanted.power === 'paused') {
        expect(now.nodes.map(({ server }) => server)).toEqual([null, null]);
        return;
      }
      for (const node of now.nodes)
        expect(node, steps.join('\n')).toMatchObject({
          data: 'standby',
          server: { phase: 'ready', size: 'current', placed: true },
          streaming: true,
          serving: true,
          takesWrites: false,
        });
    }),
    { numRuns: 1000 },
  );
});
