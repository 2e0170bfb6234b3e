/** For each promise of the conformance suite, a way to break it and no other one. */
import type { Endpoint } from '../spec.ts';
import {
  afterFailover,
  announcedLate,
  earlyPrimary,
  elsewhere,
  forgetsHalf,
  forkedNow,
  givesUp,
  knowsBetter,
  leftover,
  losesDataOf,
  neverSatisfied,
  NO_STEP,
  otherSpec,
  otherVerdict,
  replaced,
  restless,
  stubborn,
} from './planting.testing.ts';
import type { Violation } from './subject.testing.ts';

export const VIOLATIONS: Readonly<Record<string, () => Violation>> = {
  'a settled service stays settled, and no step begins': restless,
  'each step is announced before it changes anything': announcedLate,
  'an interrupted step is made again': givesUp,
  'an engine that ends between two steps continues': forgetsHalf,
  'the plan of a change has the steps that are made': () =>
    replaced('lifecycle', ({ lifecycle }) => ({
      plan: (kind, spec, ...more) =>
        kind === 'resize' && spec.ha === null && spec.set === null
          ? ['restart']
          : lifecycle.plan(kind, spec, ...more),
    })),
  'a requested extension is created and dropped, with a restart for its library': () =>
    replaced('extensions', ({ extensions }) => ({
      of: async (id) =>
        ((await extensions?.of(id)) ?? []).map((one) => ({ ...one, state: 'disabled' as const })),
    })),
  'the plan of replicas has the steps that are made': () =>
    replaced('lifecycle', ({ lifecycle }) => ({
      plan: (kind, ...more) => (kind === 'setHA' ? [] : lifecycle.plan(kind, ...more)),
    })),
  'the plan of a read replica set has the steps that are made': () =>
    replaced('lifecycle', ({ lifecycle }) => ({
      plan: (kind, spec, ...more) =>
        lifecycle
          .plan(kind, spec, ...more)
          .map((name) => (spec.set === null ? name : name.replace('clone', 'copy'))),
    })),
  'runs, reachable and present say what there is': () =>
    otherVerdict((verdict, { power, set, ha }) =>
      verdict.outcome === 'settled' && power === 'paused' && set === null && ha === null
        ? { ...verdict, seen: { ...verdict.seen, present: !verdict.seen.present } }
        : verdict,
    ),
  'another desired state replaces the one before it': stubborn,
  'the death of a server is reported and repaired': () => ({ changed: () => false }),
  'a removal leaves nothing': () =>
    replaced('lifecycle', ({ lifecycle }) => ({
      remove: async (id, parent, begin) => {
        const verdict = await lifecycle.remove(id, parent, NO_STEP);
        const isLast = verdict.did === 'remove data';
        if (isLast) await lifecycle.converge(leftover(id), begin);
        return isLast ? { ...verdict, outcome: 'settled' } : verdict;
      },
    })),
  'the removal of a service that never existed settles': () =>
    replaced('lifecycle', ({ lifecycle }) => {
      const known = new Set<string>();
      return {
        converge: (spec, begin) => {
          known.add(spec.id);
          return lifecycle.converge(spec, begin);
        },
        remove: async (id, parent, begin) => {
          if (!known.has(id)) throw new Error('unknown');
          return lifecycle.remove(id, parent, begin);
        },
      };
    }),
  'a service listens at its endpoint': () =>
    otherSpec((spec) =>
      spec.set === null ? { ...spec, endpoint: elsewhere(spec.endpoint) } : spec,
    ),
  'addresses are unique': () =>
    replaced('addresses', ({ addresses }) => {
      let first: Endpoint | null = null;
      return { reserve: async (...asked) => (first ??= await addresses.reserve(...asked)) };
    }),
  'a pooler listens while it is wanted': () =>
    otherSpec((spec) =>
      spec.pooler === null ? spec : { ...spec, pooler: elsewhere(spec.pooler) },
    ),
  'a closed engine leaves its services running': () => ({
    engine: (engine) => ({
      ...engine,
      close: async () => {
        if (await engine.lifecycle.runs('s20001')) await engine.simulation.kill('s20001', 0);
        await engine.close();
      },
    }),
  }),
  'the first password is active once a service has settled': () =>
    otherSpec((spec) =>
      spec.firstVerifier === null ? spec : { ...spec, firstVerifier: 'another' },
    ),
  'a new password is active when the call returns': () =>
    replaced('sql', ({ sql, lifecycle }) => ({
      setPassword: async (id, verifier, change) => {
        if (change.isPaused || !(await lifecycle.runs(id)))
          await sql.setPassword(id, verifier, change);
      },
    })),
  'a password that is set while a service is stopped is active once it runs': () =>
    replaced('sql', ({ sql }) => ({
      setPassword: async (id, verifier, change) =>
        change.isPaused ? undefined : sql.setPassword(id, verifier, change),
    })),
  'a stopped service refuses a statement as unavailable': () =>
    replaced('sql', ({ sql, lifecycle }) => ({
      query: async (id, ...more) =>
        (await lifecycle.runs(id))
          ? sql.query(id, ...more)
          : { columns: [], rows: [], row_count: 0, truncated: false, elapsed_ms: 0 },
    })),
  'a service and its forks have the major version that was asked for': () =>
    replaced('lifecycle', () => ({ majorOf: async () => 18 })),
  'data of another major version is not started': () =>
    otherVerdict((verdict) =>
      verdict.outcome === 'failed' && verdict.reason.startsWith('its data is of')
        ? { ...verdict, outcome: 'settled' }
        : verdict,
    ),
  'an upgrade keeps the data in a newer version, and its undo brings the former data back': () =>
    otherSpec((spec) => ({ ...spec, upgrade: null })),
  'lost data is not replaced by an empty database, and is used again when it is back': () =>
    otherSpec((spec) => ({ ...spec, provisioned: false })),
  'a stop and a resize keep the data': () => losesDataOf(({ power }) => power === 'paused'),
  'a move into a VPC and out of it keeps the data': () => losesDataOf(({ vpc }) => vpc !== null),
  'only clients of the allowed networks log in': () =>
    otherSpec((spec) => ({ ...spec, allowedNetworks: null })),
  'a fork has the data of its origin': () =>
    losesDataOf(({ origin }) => origin?.strategy === 'NOW'),
  'a fork of the last snapshot has the data of the snapshot': () => forkedNow('LAST_SNAPSHOT'),
  'a fork at a point in time has the data of that time': () => forkedNow('PITR'),
  'a primary is recorded before it is one': earlyPrimary,
  'the standbys follow after a failover': () =>
    afterFailover((engine, hasFailed) => ({
      ...engine,
      observe: {
        ...engine.observe,
        servers: async (id) =>
          (await engine.observe.servers(id)).map((server) =>
            hasFailed() && server.role === 'standby'
              ? { ...server, state: 'disconnected' }
              : server,
          ),
      },
    })),
  'a failover keeps acknowledged writes': () =>
    afterFailover((engine, hasFailed) => ({
      ...engine,
      simulation: {
        ...engine.simulation,
        countRows: async (id) => (hasFailed() ? 1 : engine.simulation.countRows(id)),
      },
    })),
  'a failover is reported with its steps': () => ({
    records: (store) => ({ ...store, end: (id, _steps, why) => store.end(id, [], why) }),
  }),
  'another recorded primary is obeyed': () => ({ records: knowsBetter }),
  'a switchover changes the primary as asked': () =>
    otherSpec((spec) =>
      spec.ha === null ? spec : { ...spec, ha: { ...spec.ha, switchover: false } },
    ),
  'a switchover is satisfied by a failover': () => ({ records: neverSatisfied }),
  'a requested drill is taken once': () => ({
    records: (store) => ({
      ...store,
      takeDrill: async (id) => {
        const wasAsked = await store.takeDrill(id);
        await store.takeDrill(id);
        return wasAsked;
      },
    }),
  }),
  'a missing standby is warned of until it follows': () =>
    replaced('observe', ({ observe }) => {
      const wasMissing = new Set<string>();
      return {
        warnings: async (id) => {
          const servers = await observe.servers(id);
          const isWhole = servers.every(({ state }) => state !== 'stopped');
          const stale = { code: 'REPLICA_MISSING', message: 'stale' } as const;
          return isWhole && wasMissing.has(id)
            ? [stale]
            : (await observe.warnings(id)).map((warning) => {
                wasMissing.add(id);
                return warning;
              });
        },
      };
    }),
  'a standby is added and removed while the service runs': () =>
    replaced('observe', ({ observe }) => {
      const mostServers = new Map<string, number>();
      return {
        servers: async (id) => {
          const servers = await observe.servers(id);
          const count = Math.max(servers.length, mostServers.get(id) ?? 0);
          mostServers.set(id, count);
          const gone = { node: 1, role: 'standby', state: 'stopped' } as const;
          const nothing = { synchronous: false, lag_bytes: null, lag_seconds: null };
          const isGone = servers.length === 1 && count > 1;
          return isGone ? [...servers, { ...gone, ...nothing }] : servers;
        },
      };
    }),
  'a read replica set routes to its nodes': () =>
    otherVerdict((verdict, { set }) =>
      set !== null && verdict.outcome === 'settled'
        ? { ...verdict, seen: { reachable: false, present: true, provisioned: false } }
        : verdict,
    ),
  'a read replica set has the data of its service': () =>
    replaced('simulation', ({ simulation, observe }) => ({
      countRows: async (id) => {
        const nodes = await observe.replicas(id);
        if (nodes.some(({ serving }) => serving)) throw new Error('it lags behind');
        return simulation.countRows(id);
      },
    })),
  'pages of a server log have each entry once, newest first': () =>
    replaced('observe', ({ observe }) => ({
      logs: async (id, node, query, signal) => {
        const page = await observe.logs(id, node, query, signal);
        return query.cursor === null ? page : { ...page, entries: page.entries.slice(1) };
      },
    })),
  'a server log is searched by word, severity and time': () =>
    replaced('observe', ({ observe }) => ({
      logs: (id, node, query, signal) => observe.logs(id, node, { ...query, search: [] }, signal),
    })),
  'a cursor of no page is refused': () =>
    replaced('observe', ({ observe }) => ({
      logs: (id, node, query, signal) =>
        query.cursor === 'nonsense'
          ? Promise.resolve({ entries: [], cursor: null })
          : observe.logs(id, node, query, signal),
    })),
  'usage has plausible figures of each server': () =>
    replaced('observe', ({ observe }) => ({
      usage: async (id) => (await observe.usage(id)).map((one) => ({ ...one, memoryBytes: 0 })),
    })),
  'the usage of a stopped service is unavailable': () =>
    replaced('observe', ({ observe, lifecycle }) => ({
      usage: async (id) =>
        observe.usage(id).catch(async (error: unknown) => {
          // A removed service is the matter of another promise.
          if ((await observe.servers(id)).length > 0 && !(await lifecycle.runs(id))) return [];
          throw error;
        }),
    })),
  'snapshots are listed newest first, within their window': () =>
    replaced('backups', ({ backups }) => ({
      describe: async (id) => {
        const described = await backups.describe(id);
        return { ...described, snapshots: described.snapshots.toReversed() };
      },
    })),
  'a snapshot is taken only after a write': () =>
    replaced('backups', ({ backups, simulation }) => ({
      keep: async (id, rules) => {
        const count = async () => (await backups.describe(id)).snapshots.length;
        const before = await count();
        const failed = await backups.keep(id, rules);
        if ((await count()) > before) return failed;
        await simulation.write(id, 1);
        return backups.keep(id, rules);
      },
    })),
  'a verification is kept with its snapshot': () =>
    replaced('backups', ({ backups }) => ({
      describe: async (id) => {
        const { last_verification: _, ...described } = await backups.describe(id);
        return described;
      },
    })),
  'a verification ends with its signal': () =>
    replaced('backups', ({ backups }) => ({
      verify: (spec, runStep) => backups.verify(spec, runStep, new AbortController().signal),
    })),
  'quotas and the disk have plausible figures': () =>
    replaced('storage', () => ({
      disk: async () => ({ freeBytes: 1e12, totalBytes: 1e13, usedPercent: 250 }),
    })),
  'an impossible action has a reason, and a possible one works': () =>
    replaced('capabilities', ({ capabilities }) => ({
      actions: { ...capabilities.actions, query: { possible: true } as const },
    })),
  'networks are new once': () =>
    replaced('networks', () => ({ converge: async (specs) => specs.map(({ id }) => id) })),
};
