/** The members of services with replicas: observes all of them, and performs the steps that {@link decideHa} chooses. */
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import type { ReplicaState, Warning } from '@howdah/contract';
import type { FailoverPolicy } from '../../../config.ts';
import type { BeginStep, PrimaryStore, Seen, Verdict } from '../../engine.ts';
import type { HighAvailability, ServiceSpec } from '../../spec.ts';
import { applyStep } from './apply.ts';
import { configure } from './configure.ts';
import type { Executor, Found } from './executor.ts';
import { startServer, stopIfRunning, stopInstance } from './start-stop.ts';
import { archiveLeftovers } from '../backup/recovery.ts';
import { NotYet } from '../host/not-yet.ts';
import { writeOwned } from '../backup/take.ts';
import { discard, removeTree } from '../host/clone.ts';
import { ownService } from '../host/own.ts';
import { capLog, createDaemonWatch, findDaemon } from '../host/daemon.ts';
import {
  decideHa,
  hangs,
  haStepName,
  type HaStep,
  type MemberSeen,
  type MembersSeen,
} from './decide-ha.ts';
import type { Observation } from './decide.ts';
import type { Listener } from '../network/listener.ts';
import { REHEARSED, rehearse, sweepRehearsal } from './drill.ts';
import { choosePlanned, chooseSuccessor, promote, type Successor } from './failover.ts';
import {
  applyAllowedNetworks,
  closeGateway,
  gatewayConfig,
  routeTo,
  observeGateway,
  NOWHERE,
  openGateway,
  prepareGateway,
} from '../proxy/gateway.ts';
import { memberKey, partsOfKey, type DaemonPaths, type InstancePaths } from '../host/layout.ts';
import { pruneLogs } from '../postgres/logs.ts';
import type { Machine } from '../host/machine-record.ts';
import type { Monitor } from '../postgres/monitor.ts';
import { holdPooler, stopPooler, type Poolers } from '../proxy/pooler.ts';
import { assertPlace } from '../network/networks.ts';
import { signal } from '../../../lib/processes.ts';
import {
  isFollower,
  MEMBER,
  memberName,
  nextQuorum,
  nextWaitedFor,
  quorumSetting,
  replicationConf,
  waitedForOf,
  WAITS_FOR_NOBODY,
  type WaitedFor,
} from '../postgres/replication.ts';
import { rename, writeFile } from '../host/root-files.ts';
import { fence, findServer, stopServer } from '../postgres/server.ts';
import { listEntries, removeEntry } from '../host/service-files.ts';
import { gatewayOwnerOf, ownerOf } from '../host/users.ts';
import { withSuperuserSession } from '../postgres/superuser.ts';
import { createSteps } from './steps.ts';
import {
  compareSizes,
  confOf,
  createStandbys,
  dataOf,
  RECEIVING,
  brokenOf,
  configureReplicated,
  createSlots,
  dropSlots,
  forgetStandby,
  isBroken,
  noteOnDisk,
  seedStandby,
  startStandby,
  writeReplication,
} from './standbys.ts';
import { endOfWal, newestTimeline, parseLsn } from '../postgres/wal.ts';

export type MembersOptions = {
  machine: Machine;
  executor: Executor;
  monitor: Monitor;
  poolers: Poolers;
  /** Observes one member as a single server. */
  look: (spec: ServiceSpec, n: number) => Promise<{ look: Found; seen: Observation }>;
  /** Where a service listens. */
  listenerFor: (spec: Pick<ServiceSpec, 'vpc'>) => Listener;
  failover: FailoverPolicy;
  records: PrimaryStore;
  changed: (id: string) => void;
};

/** How often it checks whether all standbys follow: PostgreSQL sends no notice when one ceases to. */
const ASK_MS = 2000;
/** How long the WAL of a primary that was shut down may take to reach the standby. */
const CATCH_UP_MS = 10_000;
/** A process ends at once after SIGKILL, unless it waits for a disk. */
const DIES_WITHIN_MS = 5000;
/** A standby that lacks more WAL than this catches up before a switchover: a fast disk writes it in a tenth of a second. */
const SWITCHOVER_LAG_BYTES = 16n * 1024n * 1024n;

export function createMembers({
  machine,
  executor,
  monitor,
  poolers,
  look,
  listenerFor,
  failover,
  records,
  changed,
}: MembersOptions) {
  const { layout } = machine;
  const daemons = createDaemonWatch(changed);
  /** The specs that services with members were last seen with. */
  const specs = new Map<string, ServiceSpec>();
  /** Services whose file names the primary that the metadata database records. */
  const adopted = new Set<string>();
  const turns = new Map<string, Promise<unknown>>();
  const failingOver = new Map<string, Promise<Successor>>();
  /** By a clock that is never set back. */
  const lastFailoverMs = new Map<string, number>();
  /** Services of which the metadata database was asked to name another primary, and it is not known whether they did. */
  const unsure = new Set<string>();
  /** By the key of a primary: how far it had written when the quorum, by its setting, was seen in force. */
  const writtenUnder = new Map<string, { setting: string; end: bigint }>();
  const standbys = createStandbys(executor);

  /** Runs work on a service one after the other: only one caller at a time starts, stops or promotes a primary. */
  const inTurn = async <T>(id: string, work: () => Promise<T>): Promise<T> => {
    const mine = (turns.get(id) ?? Promise.resolve()).then(work);
    turns.set(
      id,
      mine.catch(() => undefined),
    );
    return mine;
  };

  const gatewayOwner = (id: string) => gatewayOwnerOf(machine, layout.service(id));

  const portOf = (ha: HighAvailability, n: number): number => {
    const member = ha.members.find((candidate) => candidate.n === n);
    if (member === undefined)
      throw new Error(`member ${n} is none of ${ha.members.map((found) => found.n).join(', ')}`);
    return member.port;
  };

  /** Writes the number of the primary into its file, for readers without the metadata database. That is right after a crash of the machine, the file may not be. */
  const notePrimary = async (id: string, n: number): Promise<void> => {
    const path = layout.primaryFile(id);
    await writeFile(`${path}.new`, String(n));
    await rename(`${path}.new`, path);
  };

  /** Records another member as the primary in the metadata database. @throws Error when it names a third member, or none */
  const makePrimary = async (id: string, from: number, to: number): Promise<void> => {
    const named = await records.recordPrimary(id, from, to).catch((error: unknown) => {
      unsure.add(id);
      throw error;
    });
    await believe(id, named);
    if (named !== to)
      throw new Error(
        `the metadata database names member ${named} as the primary, not member ${to}`,
      );
  };

  const believe = async (id: string, named: number | null): Promise<void> => {
    if (named === null) throw new Error(`service ${id} is not in the metadata database any more`);
    unsure.add(id); // until it is written down
    await notePrimary(id, named);
    unsure.delete(id);
  };

  /** A spec may have been read before the last failover: who is the primary is known here first. To be asked in turn. */
  const current = async (spec: ServiceSpec, ha: HighAvailability): Promise<HighAvailability> => {
    if (unsure.has(spec.id)) await believe(spec.id, await records.primary(spec.id));
    if (!adopted.has(spec.id) && existsSync(layout.service(spec.id).root)) {
      if (layout.primaryOf(spec.id) !== ha.primary) await notePrimary(spec.id, ha.primary);
      adopted.add(spec.id);
    }
    return { ...ha, primary: adopted.has(spec.id) ? layout.primaryOf(spec.id) : ha.primary };
  };

  /** Does something to the primary in turn, unless another has become it meanwhile. */
  const toPrimary = async (
    spec: ServiceSpec,
    ha: HighAvailability,
    work: () => Promise<string>,
  ): Promise<string> =>
    inTurn(spec.id, async () =>
      (await current(spec, ha)).primary === ha.primary
        ? work()
        : 'not done: another member is the primary by now',
    );

  // ── observe ────────────────────────────────────────────────────────────────────────────────────────────────────

  type Seeing = {
    found: Map<number, Found>;
    conf: Map<number, string>;
    seen: MembersSeen;
    writable: boolean;
  };

  const observe = async (spec: ServiceSpec, ha: HighAvailability): Promise<Seeing> => {
    const wanted = ha.members.map(({ n }) => n);
    const numbers = [...new Set([...wanted, ...(await memberNumbers(machine, spec.id))])];
    const looks = await Promise.all(numbers.map(async (n) => ({ n, ...(await look(spec, n)) })));
    const primary = looks.find(({ n }) => n === ha.primary);
    if (primary === undefined)
      throw new Error(
        `service ${spec.id}: member ${ha.primary} is its primary and none of its members`,
      );
    const upstream = { paths: primary.look.paths, port: portOf(ha, ha.primary) };
    const followers = await followersOf(memberKey(spec.id, ha.primary));
    const streaming = wanted.filter((n) => followers?.streaming.includes(memberName(n)) === true);
    const waitedFor = waitedForOf(await confOf(primary.look.paths));
    const inForce = waitedFor.now;
    const others = wanted.filter((n) => n !== ha.primary);
    const next =
      followers === null
        ? waitedFor
        : settled(
            primary.look.key,
            nextWaitedFor(nextQuorum(ha.sync, others, streaming, inForce), waitedFor),
            followers,
          );
    const confFor = (n: number): string =>
      n === ha.primary
        ? replicationConf(memberName(n), null, next)
        : replicationConf(memberName(n), upstream, WAITS_FOR_NOBODY);
    // A reload may have been interrupted after the file was written.
    const isRead = followers === null || followers.setting === quorumSetting(inForce);
    const conf = new Map(numbers.map((n) => [n, confFor(n)]));
    // Nothing that the server reads has changed.
    if (
      quorumSetting(next.now) === quorumSetting(inForce) &&
      next.before.length < waitedFor.before.length
    )
      await writeReplication(executor, primary.look, confFor(ha.primary));
    const members = await Promise.all(
      looks.map(async ({ n, look: found, seen }): Promise<MemberSeen> => {
        const { paths, server } = found;
        await noteOnDisk(standbys, found);
        const follows = streaming.includes(n);
        return {
          n,
          data: dataOf(paths),
          server:
            server === null || seen.server === null
              ? null
              : {
                  phase: seen.server.phase,
                  size: compareSizes(server.size, spec.size),
                  port: server.port,
                  frozen: server.postmaster.frozen,
                  placed: seen.server.placed,
                },
          connected: seen.connected,
          silentMs: seen.silentMs,
          filesCurrent:
            seen.filesCurrent &&
            (await confOf(paths)) === conf.get(n) &&
            (n !== ha.primary || isRead),
          certificateCurrent: seen.certificateCurrent,
          streaming: follows,
          broken:
            n === ha.primary
              ? null
              : await brokenOf(
                  standbys,
                  found,
                  followers === null ||
                    followers.receiving.includes(memberName(n)) ||
                    seen.server?.phase !== 'ready',
                  followers?.lost.includes(memberName(n)) === true,
                ),
        };
      }),
    );
    const own = members.find(({ n }) => n === ha.primary);
    const rules: Observation = {
      ...primary.seen,
      filesCurrent: own?.filesCurrent === true,
      // With others beside it, how long it may be silent is not the rules' for one server to say.
      silentMs: others.length === 0 ? primary.seen.silentMs : null,
      server:
        primary.seen.server === null
          ? null
          : { ...primary.seen.server, sizeCurrent: true, placed: true },
    };
    const gateway = await observeGateway(layout.gateway(spec.id), listenerFor(spec));
    if (gateway.running) await watchGateway(spec.id);
    const dead = own !== undefined && (own.server === null || hangs(own));
    const successor =
      dead && rules.provisioned && spec.power === 'running' && others.length > 0
        ? await findSuccessor(spec.id, ha)
        : null;
    // The slot of one that is to be made comes with it.
    const made = members
      .filter(({ n, data }) => others.includes(n) && data !== 'absent')
      .map(({ n }) => memberName(n));
    const slots =
      followers === null ||
      (isWithin(made, followers.slots) && isWithin(followers.slots, others.map(memberName)));
    return {
      found: new Map(looks.map(({ n, look: found }) => [n, found])),
      conf,
      seen: {
        primary: rules,
        members,
        gateway,
        slotsCurrent: slots,
        settling: next.before.length > 0 && next.now.members.every((n) => streaming.includes(n)),
        rehearsed: followers?.rehearsed === true,
        successor,
      },
      writable:
        own?.server?.phase === 'ready' &&
        own.data === 'primary' &&
        own.silentMs === null &&
        gateway.running &&
        (followers === null ||
          streaming.filter((n) => inForce.members.includes(n)).length >= inForce.count),
    };
  };

  const watchGateway = async (id: string): Promise<void> => {
    const paths = layout.gateway(id);
    if (!daemons.isWatched(paths) && !(await daemons.watch(id, paths))) changed(id);
  };

  /**
   * Standbys: `streaming` have caught up, `receiving` have or are catching up; `flushed`: up to where each has flushed WAL. `end`: the end of the primary's WAL.
   * `setting`: the current synchronous_standby_names. `attentive`: the checkpointer is idle, so it has applied the setting, and commits wait by it.
   */
  type Followers = {
    streaming: string[];
    receiving: string[];
    slots: string[];
    lost: string[];
    flushed: Record<string, string | null>;
    end: string;
    setting: string;
    attentive: boolean;
    rehearsed: boolean;
  };

  /** The standbys of the primary; null if it does not answer, or does not accept writes yet. */
  const followersOf = async (key: string): Promise<Followers | null> => {
    if (!monitor.isConnected(key) || monitor.silentMs(key) !== null) return null;
    try {
      const [row] = await monitor.query<Followers & { recovering: boolean }>(
        key,
        `select pg_is_in_recovery() as recovering,
                array(select application_name from pg_stat_replication where state = 'streaming') as streaming,
                ${RECEIVING} as receiving,
                (select coalesce(json_object_agg(application_name, flush_lsn::text), '{}') from pg_stat_replication where state = 'streaming') as flushed,
                case when pg_is_in_recovery() then '0/0' else pg_current_wal_flush_lsn()::text end as end,
                current_setting('synchronous_standby_names') as setting,
                exists (select from pg_stat_activity where backend_type = 'checkpointer'
                        and wait_event in ('CheckpointerMain', 'CheckpointWriteDelay')) as attentive,
                ${REHEARSED} as rehearsed,
                array(select slot_name::text from pg_replication_slots where slot_type = 'physical' and starts_with(slot_name, '${MEMBER}')) as slots,
                array(select slot_name::text from pg_replication_slots where slot_type = 'physical' and wal_status = 'lost') as lost`,
      );
      return row === undefined || row.recovering ? null : row;
    } catch {
      return null; // it is dying: the next round sees it
    }
  };

  /**
   * Writes acknowledged before a quorum was in force are on all of its members once these have what the
   * primary had written by then. From then on no other member is needed to prove them.
   */
  const settled = (
    key: string,
    next: WaitedFor,
    { flushed, end, setting, attentive }: Followers,
  ): WaitedFor => {
    const mark = writtenUnder.get(key);
    if (next.before.length === 0 || setting !== quorumSetting(next.now)) {
      writtenUnder.delete(key);
      return next;
    }
    if (mark?.setting !== setting) {
      if (attentive) writtenUnder.set(key, { setting, end: parseLsn(end) });
      return next;
    }
    const all = next.now.members.every(
      (n) => parseLsn(flushed[memberName(n)] ?? '0/0') >= mark.end,
    );
    return all ? { now: next.now, before: [] } : next;
  };

  /** The standby that can take over from a primary that is dead or hangs. */
  const findSuccessor = async (id: string, ha: HighAvailability): Promise<Successor> => {
    const waitMs = (lastFailoverMs.get(id) ?? -Infinity) + failover.restMs - performance.now();
    if (waitMs > 0) return { why: `last failover less than ${failover.restMs / 1000} s ago` };
    const primary = layout.member(id, ha.primary);
    const timeline = await newestTimeline(primary.data).catch(() => 0);
    const others = ha.members
      .filter(({ n }) => n !== ha.primary)
      .map(({ n }) => ({ n, key: memberKey(id, n), paths: layout.member(id, n) }));
    const candidates = await Promise.all(
      others.map(async ({ n, key, paths }) => {
        if (!monitor.isConnected(key) || dataOf(paths) !== 'standby' || isBroken(standbys, key))
          return null;
        // A standby without the newest timeline has WAL that the others do not have.
        if ((await newestTimeline(paths.data)) !== timeline) return null;
        const [row] = await monitor
          .query<{ received: string }>(
            key,
            'select greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())::text as received',
          )
          .catch(() => []);
        return row === undefined ? null : { n, received: parseLsn(row.received) };
      }),
    );
    const alive = candidates.filter((candidate) => candidate !== null);
    const furthest = alive.reduce((most, { received }) => (received > most ? received : most), 0n);
    try {
      return chooseSuccessor({
        candidates: alive,
        sync: ha.sync,
        waitedFor: waitedForOf(await confOf(primary)),
        end:
          alive.length === 0
            ? 0n
            : await endOfWal(primary.data, timeline, furthest, BigInt(failover.lagLimitBytes)),
        maxLostBytes: failover.lagLimitBytes,
      });
    } catch (error) {
      // It is started again where it is, which says more.
      return {
        why: `how far member ${ha.primary} has written cannot be read: ${error instanceof Error ? error.message : String(error)}`,
      };
    }
  };

  // ── failover ───────────────────────────────────────────────────────────────────────────────────────────────────

  /** The primary is dead, or hangs: ends it for certain and promotes another, if one can be. */
  const failOver = (spec: ServiceSpec, ha: HighAvailability): Promise<Successor> => {
    const underWay = failingOver.get(spec.id);
    if (underWay !== undefined) return underWay;
    const mine = inTurn(spec.id, async () => takeOver(spec, await current(spec, ha))).finally(() =>
      failingOver.delete(spec.id),
    );
    failingOver.set(spec.id, mine);
    return mine;
  };

  const takeOver = async ({ id }: ServiceSpec, ha: HighAvailability): Promise<Successor> => {
    const from = ha.primary;
    const paths = layout.member(id, from);
    if (!(await isDead(id, from))) return { why: `member ${from} runs` };
    const steps = createSteps();
    const announced = records.begin(id);
    announced.catch(() => undefined);
    if (
      !(await steps.take(
        'fence',
        () => fence(paths),
        (gone) => (gone ? `nothing of member ${from} is left` : 'it does not end'),
      ))
    )
      throw new Error(
        `member ${from} does not end, not even by SIGKILL: is ${paths.root} on a disk that hangs?`,
      );
    monitor.forget(memberKey(id, from));
    const choice = await findSuccessor(id, ha);
    if ('why' in choice) {
      await announced;
      await records.end(id, steps.done(), choice.why);
      return choice;
    }
    const to = choice.n;
    await makePrimary(id, from, to);
    await steps.take(
      'promote',
      () => takeWrites(id, ha, to),
      () => `member ${to}: ${choice.detail}`,
    );
    lastFailoverMs.set(id, performance.now());
    await announced;
    await records.end(id, steps.done(), null);
    return choice;
  };

  /** Promotes a member that the metadata database names as the primary, and routes the gateway to it. */
  const takeWrites = async (id: string, ha: HighAvailability, n: number): Promise<void> => {
    await promote({ n, port: portOf(ha, n) }, (text) => monitor.query(memberKey(id, n), text));
    await routeTo(layout.gateway(id), portOf(ha, n)).catch(() => undefined); // a gateway that does not run is started, and then routed there
  };

  const isDead = async (id: string, n: number): Promise<boolean> => {
    const server = await findServer(layout.member(id, n));
    if (server === null) return true;
    // An answer may lie there unread: this process was busy itself.
    await nextTurn();
    return hangs({ server: server.postmaster, silentMs: monitor.silentMs(memberKey(id, n)) });
  };

  /** Something watched changed by itself. If a primary died, another takes over before the reconciler is notified. */
  const noticed = async (key: string): Promise<void> => {
    const { id, n } = partsOfKey(key);
    const spec = specs.get(id);
    try {
      if (
        spec?.ha != null &&
        spec.power === 'running' &&
        layout.primaryOf(id) === n &&
        (await isDead(id, n))
      ) {
        const { ha: wanted } = spec;
        const ha = await inTurn(id, () => current(spec, wanted));
        if ('n' in (await findSuccessor(id, ha))) await failOver(spec, ha);
      }
    } catch (error) {
      process.emitWarning(
        `service ${id}: its failover did not get on, and is tried again: ${String(error)}`,
      );
    } finally {
      changed(id);
    }
  };

  // ── apply ──────────────────────────────────────────────────────────────────────────────────────────────────────

  const apply = async (
    spec: ServiceSpec,
    ha: HighAvailability,
    step: HaStep,
    { found, conf, seen }: Seeing,
  ): Promise<string> => {
    const { id } = spec;
    const gateway = layout.gateway(id);
    const listener = listenerFor(spec);
    const listen = { address: listener.address, port: spec.endpoint.port };
    const primaryPort = portOf(ha, ha.primary);
    const at = (n: number): Found => {
      const member = found.get(n);
      if (member === undefined) throw new Error(`member ${n} was not looked at`);
      return member;
    };
    const open = async (): Promise<string> => {
      await assertPlace(listener, machine.networks);
      await prepareGateway(
        gatewayOwner(spec.id),
        gateway,
        gatewayConfig(gateway, listen, listener),
        listener,
      );
      await openGateway(machine, gatewayOwner(spec.id), gateway, daemons, id, listener);
      return `on port ${spec.endpoint.port}`;
    };
    switch (step.kind) {
      case 'server':
        return applyServer(spec, ha, step, at(step.n), conf.get(step.n) ?? '', seen);
      case 'fence':
        monitor.forget(memberKey(id, step.n));
        if (!(await fence(at(step.n).paths))) throw new Error(`member ${step.n} does not end`);
        return 'it follows the primary from now on';
      case 'failOver': {
        const choice = await failOver(spec, ha);
        return 'n' in choice ? `member ${choice.n} is the primary: ${choice.detail}` : choice.why;
      }
      case 'promote':
        return toPrimary(spec, ha, async () => {
          await takeWrites(id, ha, ha.primary);
          return `member ${ha.primary}`;
        });
      case 'switchOver':
        return toPrimary(spec, ha, () => switchOver(spec, ha, step.to, step.why));
      case 'restart':
        return toPrimary(spec, ha, () => restart(spec, ha, at(ha.primary), step.why));
      case 'moveToGateway':
        return toPrimary(spec, ha, async () => {
          await checkpoint(at(ha.primary));
          await prepareGateway(
            gatewayOwner(spec.id),
            gateway,
            gatewayConfig(gateway, listen, listener),
            listener,
          );
          await configureReplicated(executor, at(ha.primary), conf.get(ha.primary) ?? '');
          const { key, paths, server } = at(ha.primary);
          await stopIfRunning(executor, { key, paths, server });
          // From here on who connects waits: the gateway is there before the primary is.
          await openGateway(machine, gatewayOwner(spec.id), gateway, daemons, id, listener);
          const started = await startServer(executor, spec, at(ha.primary));
          await routeTo(gateway, primaryPort);
          return started;
        });
      case 'own':
        return toPrimary(spec, ha, () => own(spec, ha, found, conf));
      case 'move':
        return toPrimary(spec, ha, () =>
          move(spec, ha, at(ha.primary), conf.get(ha.primary) ?? '', step.why),
        );
      case 'allowNetworks':
        return `${await applyAllowedNetworks(gatewayOwner(spec.id), gateway, listener.allowedNetworks ?? [])} sessions of others ended`;
      case 'openGateway':
        return open();
      case 'startWithGateway': {
        const start: ServerStep = { kind: 'server', n: step.n, step: { kind: 'start' } };
        const both = [
          applyServer(spec, ha, start, at(step.n), conf.get(step.n) ?? '', seen),
          open(),
        ];
        // Neither may continue once the caller knows that the other has failed.
        await Promise.allSettled(both);
        return (await Promise.all(both)).join('; the gateway ');
      }
      case 'routeGateway':
        await routeTo(gateway, primaryPort);
        return `member ${ha.primary}`;
      case 'closeGateway':
        await closeGateway(gateway, daemons);
        return step.why;
      case 'seed':
        return seedStandby(standbys, at(step.n), {
          primary: { key: memberKey(id, ha.primary), paths: at(ha.primary).paths },
          slot: memberName(step.n),
          conf: conf.get(step.n) ?? '',
          why: step.why,
        });
      case 'setSlots':
        return setSlots(id, ha);
      case 'retire':
        await retire(id, step.n, at(step.n));
        return 'as was asked for';
      case 'sweepDrill':
        await sweepRehearsal({ paths: at(ha.primary).paths, port: primaryPort });
        return 'it was interrupted';
      case 'drill':
        return drill(spec, ha);
    }
  };

  type ServerStep = Extract<HaStep, { kind: 'server' }>;

  const applyServer = async (
    spec: ServiceSpec,
    ha: HighAvailability,
    { n, step }: ServerStep,
    found: Found,
    conf: string,
    seen: MembersSeen,
  ): Promise<string> => {
    if (step.kind === 'settled' || step.kind === 'wait' || step.kind === 'refuse') return '';
    if (step.kind === 'writeFiles' || step.kind === 'reload')
      await writeReplication(executor, found, conf);
    if (n !== ha.primary) {
      const apply = () => applyStep(executor, spec, step, found);
      return step.kind === 'start' ? startStandby(standbys, found.key, apply) : apply();
    }
    if (step.kind !== 'start' && step.kind !== 'stop') {
      const did = await applyStep(executor, spec, step, found);
      // A new member has a directory for the file only now.
      if (step.kind === 'clone' || step.kind === 'fork')
        await writeReplication(executor, found, conf);
      return did;
    }
    const why =
      seen.successor !== null && 'why' in seen.successor
        ? `; nobody takes over: ${seen.successor.why}`
        : '';
    return toPrimary(spec, ha, async () => `${await applyStep(executor, spec, step, found)}${why}`);
  };

  /** A checkpoint before the shutdown writes most of what the shutdown would, while the primary still accepts connections. */
  const checkpoint = async ({ paths, listen, server }: Found): Promise<void> => {
    if (server !== null) await checkpointAt(paths, server.port ?? listen.port);
  };

  /** Stops and starts the primary in one step, so that it never counts as dead in between. Clients that connect meanwhile wait. */
  const restart = async (
    spec: ServiceSpec,
    ha: HighAvailability,
    found: Found,
    why: string,
  ): Promise<string> => {
    const gateway = layout.gateway(spec.id);
    await checkpoint(found);
    await holdPooler(poolers, layout.service(spec.id));
    await routeTo(gateway, NOWHERE);
    await stopIfRunning(executor, found);
    await configure(executor, found);
    await startServer(executor, spec, found);
    await routeTo(gateway, portOf(ha, ha.primary));
    return why;
  };

  /** Stops the primary and starts it in the desired network, in one step like a restart, together with the gateway. All sessions end. */
  const move = async (
    spec: ServiceSpec,
    ha: HighAvailability,
    found: Found,
    conf: string,
    why: string,
  ): Promise<string> => {
    const gateway = layout.gateway(spec.id);
    const { listener } = found;
    await assertPlace(listener, machine.networks);
    await checkpoint(found);
    await closeGateway(gateway, daemons);
    await prepareGateway(
      gatewayOwner(spec.id),
      gateway,
      gatewayConfig(gateway, { address: listener.address, port: spec.endpoint.port }, listener),
      listener,
    );
    await stopIfRunning(executor, found);
    await configureReplicated(executor, found, conf);
    await startServer(executor, spec, found);
    await openGateway(machine, gatewayOwner(spec.id), gateway, daemons, spec.id, listener);
    await routeTo(gateway, portOf(ha, ha.primary));
    return why;
  };

  /** Ends all of a service, gives it to a user of its own, and starts its primary again as that user; the others follow by their own steps. */
  const own = async (
    spec: ServiceSpec,
    ha: HighAvailability,
    found: Map<number, Found>,
    conf: Map<number, string>,
  ): Promise<string> => {
    const { id } = spec;
    const gateway = layout.gateway(id);
    const primary = found.get(ha.primary);
    if (primary === undefined) throw new Error(`member ${ha.primary} was not looked at`);
    await checkpoint(primary);
    await stopPooler(poolers, layout.service(id));
    await closeGateway(gateway, daemons);
    // The primary first: as it ends it sends all it has to the others.
    const others = [...found.values()].filter((member) => member !== primary);
    for (const { key, paths, server } of [primary, ...others])
      await stopIfRunning(executor, { key, paths, server });
    const owned = await ownService(machine, id, null);
    const { look: now } = await look(spec, ha.primary);
    await configureReplicated(executor, now, conf.get(ha.primary) ?? '');
    const listen = { address: now.listener.address, port: spec.endpoint.port };
    await prepareGateway(
      gatewayOwner(id),
      gateway,
      gatewayConfig(gateway, listen, now.listener),
      now.listener,
    );
    await startServer(executor, spec, now);
    await openGateway(machine, gatewayOwner(id), gateway, daemons, id, now.listener);
    await routeTo(gateway, portOf(ha, ha.primary));
    return owned;
  };

  /** In order: the primary ends, having sent all it has; the standby is seen to have it; then it is promoted. */
  const switchOver = async (
    { id }: ServiceSpec,
    ha: HighAvailability,
    to: number,
    why: string,
  ): Promise<string> => {
    const paths = layout.member(id, ha.primary);
    const server = await findServer(paths);
    if (server === null) throw new NotYet('the primary does not run');
    // Writes wait for as long as it takes the standby to receive what it lacks.
    const followers = await followersOf(memberKey(id, ha.primary));
    const lackingBytes =
      parseLsn(followers?.end ?? '0/0') - parseLsn(followers?.flushed[memberName(to)] ?? '0/0');
    if (lackingBytes > SWITCHOVER_LAG_BYTES)
      throw new NotYet(`member ${to} is ${lackingBytes} bytes behind: it catches up first`);
    await checkpointAt(paths, server.port ?? portOf(ha, ha.primary));
    // Its clients wait until it is routed to the primary.
    await holdPooler(poolers, layout.service(id));
    const begun = performance.now();
    await routeTo(layout.gateway(id), NOWHERE);
    await stopInstance(executor, memberKey(id, ha.primary), paths, server, 'fast');
    await caughtUp(id, ha.primary, to);
    await makePrimary(id, ha.primary, to);
    await takeWrites(id, ha, to);
    const pauseMs = Math.round(performance.now() - begun);
    // Nothing was written that the new primary does not have: the old one can follow it as it is.
    await makeStandby(paths);
    return `${why}; writes paused for ${pauseMs} ms, nothing was lost`;
  };

  /** Waits until a standby has all WAL of a primary that was stopped. */
  const caughtUp = async (id: string, from: number, to: number): Promise<void> => {
    const data = layout.member(id, from).data;
    const end = Date.now() + CATCH_UP_MS;
    for (;;) {
      const [row] = await monitor.query<{ received: string }>(
        memberKey(id, to),
        'select pg_last_wal_receive_lsn()::text as received',
      );
      const received = parseLsn(row?.received ?? '0/0');
      if ((await endOfWal(data, await newestTimeline(data), received, 1n)) <= received) return;
      if (Date.now() > end)
        throw new Error(
          `member ${to} does not have all that member ${from} wrote: nothing was changed`,
        );
      await sleep(2);
    }
  };

  const makeStandby = async (paths: InstancePaths): Promise<void> => {
    const slots = join(paths.data, 'pg_replslot');
    for (const slot of await listEntries(slots)) {
      if (isFollower(slot)) await removeEntry(join(slots, slot));
    }
    await archiveLeftovers(ownerOf(machine, paths), paths);
    await writeOwned(ownerOf(machine, paths), join(paths.data, 'standby.signal'), '');
  };

  const setSlots = async (id: string, ha: HighAvailability): Promise<string> => {
    const key = memberKey(id, ha.primary);
    const names = ha.members.filter(({ n }) => n !== ha.primary).map(({ n }) => memberName(n));
    const there = (await followersOf(key))?.slots ?? [];
    await dropSlots(
      monitor,
      key,
      there.filter((name) => !names.includes(name)),
    );
    await createSlots(monitor, key, names);
    return names.join(', ');
  };

  const retire = async (id: string, n: number, { key, paths }: Found): Promise<void> => {
    monitor.forget(key);
    if (!(await fence(paths))) throw new Error(`member ${n} does not end`);
    if (dataOf(paths) === 'primary') await archiveLeftovers(ownerOf(machine, paths), paths);
    await discard(machine, id, paths.data);
    // Member 0's directory is the service's.
    if (n > 0) await removeTree(paths.root, machine.cloneMethod);
    forgetStandby(standbys, key);
  };

  const drill = async (spec: ServiceSpec, ha: HighAvailability): Promise<string> => {
    const { id } = spec;
    // Taken up before it begins: one that is interrupted does not kill another primary.
    if (!(await records.takeDrill(id))) throw new Error('drill interrupted; run it again');
    const kind = ha.drill;
    return rehearse({
      primary: () => ({
        paths: layout.member(id, layout.primaryOf(id)),
        port: portOf(ha, layout.primaryOf(id)),
      }),
      endpoint: {
        host: endpointFor(listenerFor(spec), layout.gateway(id)),
        port: spec.endpoint.port,
      },
      injectFault: async () => {
        if (kind === 'switchover') {
          const successor = choosePlanned(ha.members.filter(({ n }) => n !== ha.primary));
          if (successor !== undefined)
            await toPrimary(spec, ha, () => switchOver(spec, ha, successor.n, 'drill')).catch(
              forGood,
            );
          return;
        }
        lastFailoverMs.delete(id);
        const successor = await findSuccessor(id, ha);
        if ('why' in successor)
          throw new Error(`nothing was killed, for nobody could take over: ${successor.why}`);
        const server = await findServer(layout.member(id, ha.primary));
        if (server !== null) signal(server.postmaster.pid, 'SIGKILL');
        for (
          const end = Date.now() + DIES_WITHIN_MS;
          !(await isDead(id, ha.primary)) && Date.now() < end;
        )
          await sleep(2);
        const choice = await failOver(spec, ha);
        if ('why' in choice && layout.primaryOf(id) === ha.primary)
          throw new Error(`nobody took over: ${choice.why}`);
      },
    });
  };

  // ── the interface ──────────────────────────────────────────────────────────────────────────────────────────────

  const converge = async (
    spec: ServiceSpec,
    wanted: HighAvailability,
    begin: BeginStep,
  ): Promise<Verdict> => {
    specs.set(spec.id, spec);
    await failingOver.get(spec.id)?.catch(() => undefined);
    const ha = await inTurn(spec.id, () => current(spec, wanted));
    const seeing = await observe(spec, ha);
    const step = decideHa(spec, ha, seeing.seen);
    const before: Seen = {
      reachable: seeing.writable,
      present: seeing.seen.primary.directory === 'ours',
    };
    const did = haStepName(step);
    if (did === null && step.kind === 'server') {
      switch (step.step.kind) {
        case 'wait':
          return {
            did: null,
            detail: waitingFor(step.step.why, seeing),
            seen: before,
            outcome: 'again',
            waitMs: step.step.waitMs,
          };
        case 'refuse':
          return {
            did: null,
            detail: null,
            seen: before,
            outcome: 'failed',
            reason: `${layout.service(spec.id).root}: ${step.step.why}`,
          };
        default:
          for (const { paths } of seeing.found.values())
            if (existsSync(paths.logs)) await pruneLogs(paths.logs);
          await Promise.all([
            capLog(layout.service(spec.id).pooler),
            capLog(layout.gateway(spec.id)),
          ]);
          return { did: null, detail: null, seen: before, outcome: 'settled' };
      }
    }
    const name = did ?? step.kind;
    await begin(name, before);
    try {
      const detail = await apply(spec, ha, step, seeing);
      return {
        did: name,
        detail,
        seen: { reachable: before.reachable, present: true },
        outcome: 'again',
        waitMs: 0,
      };
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      if (error instanceof NotYet)
        return { did: null, detail: reason, seen: before, outcome: 'again', waitMs: 100 };
      return {
        did: name,
        detail: reason,
        seen: before,
        outcome: 'failed',
        reason: `${name}: ${reason}`,
      };
    }
  };

  const waitingFor = (why: string, { writable }: Seeing): string =>
    writable ? why : `writes wait: ${why}`;

  /** Asks each primary whether all its standbys follow. */
  const askFollowers = async (): Promise<void> => {
    for (const { id, ha, power } of specs.values()) {
      if (ha === null || power === 'paused') continue;
      const primary = layout.primaryOf(id);
      const followers = await followersOf(memberKey(id, primary));
      const late = ha.members.some(
        ({ n }) => n !== primary && followers?.streaming.includes(memberName(n)) !== true,
      );
      if (late) changed(id);
    }
  };
  const timer = setInterval(() => void askFollowers(), ASK_MS).unref();

  /** The state of each member but the primary, as the primary reports it. */
  const states = async (id: string): Promise<ReplicaState[]> => {
    const spec = specs.get(id);
    if (spec?.ha == null) return [];
    const primary = layout.primaryOf(id);
    const key = memberKey(id, primary);
    const rows = monitor.isConnected(key)
      ? await monitor
          .query<{ name: string; bytes: number; seconds: number | null }>(
            key,
            `select application_name as name, greatest(0, pg_current_wal_flush_lsn() - replay_lsn)::float8 as bytes,
                    extract(epoch from replay_lag)::float8 as seconds
             from pg_stat_replication where state = 'streaming' and not pg_is_in_recovery()`,
          )
          .catch(() => [])
      : [];
    return spec.ha.members
      .filter(({ n }) => n !== primary)
      .map(({ n }) => {
        const row = rows.find(({ name }) => name === memberName(n));
        const [lag_bytes, lag_seconds] =
          row === undefined ? [null, null] : [row.bytes, row.bytes === 0 ? 0 : (row.seconds ?? 0)];
        const detail = row === undefined ? 'does not follow the primary' : 'follows the primary';
        return { node: n, serving: false, lag_bytes, lag_seconds, detail };
      });
  };

  /** The problems of the replicas of a service. */
  const warnings = async (id: string): Promise<Warning[]> => {
    const ha = specs.get(id)?.ha ?? null;
    const missing = (await states(id)).filter(({ lag_bytes: bytes }) => bytes === null);
    if (ha === null || missing.length === 0) return [];
    const following = ha.members.length - 1 - missing.length;
    const wait = following < ha.sync ? `; writes wait until ${ha.sync} of its replicas follow` : '';
    const who = missing.map(({ node }) => `member ${node}`).join(' and ');
    const message = `${who} of its ${ha.members.length - 1} replicas cannot take over at this moment${wait}; this is being repaired`;
    return [{ code: 'REPLICA_MISSING', message }];
  };

  return {
    converge,
    noticed,
    states,
    warnings,
    /** Stops the gateway and the other members of a service, one step at a time. @returns whether anything was running */
    end: async (id: string): Promise<boolean> => {
      specs.delete(id);
      adopted.delete(id);
      const gateway = layout.gateway(id);
      const running = (await findDaemon(gateway)) !== null;
      await closeGateway(gateway, daemons);
      let ended = running;
      for (const n of await memberNumbers(machine, id)) {
        const server = n === 0 ? null : await findServer(layout.member(id, n));
        if (server === null) continue;
        ended = true;
        if (
          !(await stopServer(machine, server, 'immediate', 5000)) &&
          !(await fence(layout.member(id, n)))
        )
          throw new Error(`member ${n} does not end`);
      }
      return ended;
    },
    close: (): void => {
      clearInterval(timer);
      daemons.close();
    },
  };
}

// ── small things ─────────────────────────────────────────────────────────────────────────────────────────────────

/** Where the control plane itself gets through a gateway: in a VPC, by the gateway's own socket. */
function endpointFor(
  { address, namespace, allowedNetworks }: Listener,
  gateway: DaemonPaths,
): string {
  return namespace === null && allowedNetworks === null ? address : gateway.root;
}

/** The members that there is anything of on the disk. */
export async function memberNumbers({ layout }: Machine, id: string): Promise<number[]> {
  const { root, data } = layout.service(id);
  const others = await readdir(join(root, 'members')).catch(() => []);
  return [...(existsSync(data) ? [0] : []), ...others.map(Number)];
}

function isWithin(some: readonly string[], all: readonly string[]): boolean {
  return some.every((name) => all.includes(name));
}

/** A checkpoint before a stop shortens the stop; one that takes longer than this is given up, and with it the step. */
async function checkpointAt(server: InstancePaths, port: number): Promise<void> {
  await withSuperuserSession(
    { server, port, name: 'howdah members', limitMs: CHECKPOINT_LIMIT_MS },
    (client) => client.query('checkpoint'),
  );
}
const CHECKPOINT_LIMIT_MS = 600_000;

/** Turns a wait into a failure. */
function forGood(error: unknown): never {
  throw error instanceof NotYet ? new Error(error.message, { cause: error }) : error;
}
