/** The needs of the conformance suite from an engine under test, and the tools of its promises. */
import assert from 'node:assert/strict';
import type { QueryResult, RegionalAction } from '@howdah/contract';
import {
  EngineUnavailable,
  type BeginStep,
  type Engine,
  type ReadStatement,
  type Verdict,
} from '../engine.ts';
import type { KeepRules } from '../keep-rules.ts';
import type { ServiceSpec } from '../spec.ts';
import type { MemoryRecords } from './memory-records.ts';

/** An engine, and the few things that a suite does around it. */
export type Subject = {
  /** The engine now: {@link Subject.recreate} makes another. */
  readonly engine: Engine;
  /** Keeps the primaries and ports that the engine records. */
  readonly records: MemoryRecords;
  /** Services that the engine has reported as changed. */
  readonly changed: ReadonlySet<string>;
  /** A spec of one running server with an id, an address and a first password of its own. */
  readonly newSpec: () => Promise<ServiceSpec>;
  /** A port that nothing uses, and that no spec has had. */
  readonly newPort: () => Promise<number>;
  /** Whether something listens on a port. */
  readonly listens: (port: number) => Promise<boolean>;
  /** The SCRAM verifier of a password. */
  readonly verifierOf: (password: string) => Promise<string>;
  /** The password of new specs. */
  readonly firstPassword: string;
  /** The network of the clients of the suite. */
  readonly clientNetwork: string;
  /** Whether a client logs in through the endpoint. */
  readonly canLogIn: (spec: ServiceSpec, password: string) => Promise<boolean>;
  /** Writes rows through the endpoint, with the first password. */
  readonly insertRows: (spec: ServiceSpec, rows: number) => Promise<void>;
  /** The rows that a client reads through the endpoint. @param password null: the first */
  readonly countRows: (spec: ServiceSpec) => Promise<number>;
  /** Waits as the reconciler would between two steps. */
  readonly wait: (ms: number) => Promise<void>;
  /** The time by the clock of the engine, in ms since the epoch. */
  readonly nowMs: () => Promise<number>;
  /** How often a service that is written to gets a snapshot. */
  readonly snapshotEveryMs: number;
  /** Ends a server as a crash would. */
  readonly kill: (id: string, node: number) => Promise<void>;
  /**
   * Takes all data of a service away, as the loss of a disk would. @returns a function that brings
   * it back
   */
  readonly loseData: (id: string) => Promise<() => Promise<void>>;
  /** Ends the engine as a crash of the control plane would, and makes another on the same state. */
  readonly recreate: () => Promise<void>;
  /** All that still exists of a service, where the engine keeps its services. */
  readonly leftovers: (id: string) => Promise<string[]>;
};

/** Backups are removed by their age, far below the quota. */
export const KEEP: KeepRules = { removes: true, quotaBytes: 10e9 };

/** One promise of the interface. */
export type Promised = {
  /** The behaviour as a sentence. */
  readonly name: string;
  /** Whether it can be checked here: it may need a gateway that is not installed. */
  readonly applies?: (engine: Capable) => boolean;
  readonly check: (subject: Subject) => Promise<void>;
};

type Capable = Pick<Engine, 'capabilities'>;

export const hasGateway = ({ capabilities }: Capable): boolean =>
  capabilities.actions.setHA.possible;
export const hasPooler = ({ capabilities }: Capable): boolean =>
  capabilities.actions.enablePooler.possible;
/** Whether the engine can do something at all. */
export const can =
  (action: RegionalAction) =>
  ({ capabilities }: Capable): boolean =>
    capabilities.actions[action].possible;

/** How long a service may take to settle, by the clock of the engine, and in rounds. */
const SETTLE_MS = 120_000;
const MAX_ROUNDS = 10_000;
const NO_STEP: BeginStep = async () => undefined;

/** Steps that were made, with what `begin` was called with and the last verdict. */
export type Settled = { steps: string[]; begun: string[]; last: Verdict };

/** A spec as the control plane would pass it now: with what was asked for. */
export function currentSpec({ records }: Subject, spec: ServiceSpec): ServiceSpec {
  return spec.ha === null ? spec : { ...spec, ha: records.current(spec.id, spec.ha) };
}

/**
 * Makes steps until a service is settled.
 *
 * @param asRead the spec as it is read for a step; by default what is desired now
 * @throws AssertionError when a step fails
 */
export async function settle(
  subject: Subject,
  spec: ServiceSpec,
  begin: BeginStep = NO_STEP,
  asRead = currentSpec,
): Promise<Settled> {
  const begun: string[] = [];
  const steps: string[] = [];
  const announce: BeginStep = async (step, seen) => {
    if (begun.at(-1) !== step || steps.at(-1) === step) begun.push(step);
    await begin(step, seen);
  };
  for (const check = await deadline(subject); ;) {
    const verdict = await subject.engine.lifecycle.converge(asRead(subject, spec), announce);
    if (verdict.did !== null) steps.push(verdict.did);
    if (verdict.outcome === 'settled') return { steps, begun, last: verdict };
    if (verdict.outcome === 'failed') assert.fail(`a step failed: ${verdict.reason}`);
    await check(`it settles: ${verdict.detail}; ${steps.slice(-20).join(', ')}`);
    if (verdict.waitMs > 0) await subject.wait(verdict.waitMs);
  }
}

/** Makes steps until nothing of a service is left. @returns the steps that were made */
export async function removeAll(
  subject: Subject,
  id: string,
  parent: string | null = null,
  begin: BeginStep = NO_STEP,
): Promise<Settled> {
  const steps: string[] = [];
  for (const check = await deadline(subject); ;) {
    const verdict = await subject.engine.lifecycle.remove(id, parent, begin);
    if (verdict.did !== null) steps.push(verdict.did);
    if (verdict.outcome === 'settled') return { steps, begun: [], last: verdict };
    if (verdict.outcome === 'failed') assert.fail(`the removal failed: ${verdict.reason}`);
    await check(`it is removed: ${verdict.detail}`);
    if (verdict.waitMs > 0) await subject.wait(verdict.waitMs);
  }
}

/** Has a service that runs while `work` does, and removes it afterwards. */
export async function withService(
  subject: Subject,
  change: Partial<ServiceSpec>,
  work: (spec: ServiceSpec) => Promise<void>,
): Promise<void> {
  const spec = { ...(await subject.newSpec()), ...change };
  await settling(subject, spec, work);
}

/** The same for a spec that is at hand. */
export async function settling(
  subject: Subject,
  spec: ServiceSpec,
  work: (spec: ServiceSpec) => Promise<void>,
): Promise<void> {
  try {
    await settle(subject, spec);
    await work(spec);
  } finally {
    await removeAll(subject, spec.id, spec.set?.parent ?? null).catch(() => undefined);
    subject.records.forget(spec.id);
  }
}

/** Waits until something holds. */
export async function until(
  subject: Subject,
  what: string,
  holds: () => Promise<boolean>,
): Promise<void> {
  const check = await deadline(subject);
  while (!(await holds())) {
    await check(what);
    await subject.wait(20);
  }
}

/** The reason of engines that have the role of statements made by others, until it is there. */
const ROLE_IS_MADE = /has not made its role/;

/** Runs a statement of a user, as soon as the role of statements is there. */
export async function runStatement(
  subject: Subject,
  { id, set }: ServiceSpec,
  sql: string,
  change: Partial<ReadStatement> = {},
): Promise<QueryResult> {
  const statement = { sql, parameters: [], maxRows: 10, timeoutMs: 20_000, ...change };
  for (const check = await deadline(subject); ; await subject.wait(20)) {
    try {
      return await subject.engine.sql.query(id, set?.parent ?? null, statement);
    } catch (error) {
      if (!(error instanceof EngineUnavailable && ROLE_IS_MADE.test(error.message))) throw error;
      await check(error.message);
    }
  }
}

/** @returns a check that throws once something has taken too long */
async function deadline(subject: Subject): Promise<(what: string) => Promise<void>> {
  const endMs = (await subject.nowMs()) + SETTLE_MS;
  let rounds = 0;
  return async (what) => {
    rounds += 1;
    assert.ok(rounds <= MAX_ROUNDS && (await subject.nowMs()) < endMs, `not in time: ${what}`);
  };
}

/** A service with one replica that its writes wait for. */
export async function withReplicas(
  subject: Subject,
  work: (spec: ServiceSpec) => Promise<void>,
): Promise<void> {
  const spec = await subject.newSpec();
  await settling(subject, replicated(subject, spec, 1), work);
}

/** A spec with replicas, as setHA records it. */
export function replicated(subject: Subject, spec: ServiceSpec, replicas: number): ServiceSpec {
  const sync = Math.min(1, replicas);
  subject.records.add(spec.id, 0);
  return { ...spec, ha: { replicas, sync, switchover: false, drill: null } };
}
