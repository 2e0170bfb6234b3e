/**
 * Texts of the engine reach tenants, who must not learn paths of the machine. Errors of the
 * operating system and of PostgreSQL name them, so every text is cleaned where it leaves the
 * engine: paths become relative to the data directory.
 */
import { realpathSync } from 'node:fs';
import type { Verification } from '@howdah/contract';
import type { BackupKeeping, Engine, Verdict } from '../engine.ts';
import type { MoveSource, MoveTargetRegion } from '../moves.ts';
import type { RestoredBackup } from '../restored-backup.ts';
import type { RunStep } from '../run-step.ts';
import type { OffMachineBackups, OffMachineState } from '../off-machine.ts';

export type Clean = (text: string) => string;

/** @param root the data directory; if it is a link, errors name its real path */
export function pathCleaner(root: string): Clean {
  const roots = [root, realpathSync(root)].toSorted((a, b) => b.length - a.length);
  const escaped = roots.map((path) => path.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  const pattern = new RegExp(`(?:${escaped.join('|')})(?:/|(?![\\w.-]))`, 'g');
  return (text) =>
    text.replaceAll(pattern, (found) => (found.endsWith('/') ? '' : 'the data directory'));
}

/** @returns the engine, with texts and errors that name no path of its data directory */
export function withoutPaths(engine: Engine, root: string): Engine {
  const clean = pathCleaner(root);
  const { lifecycle, sql, extensions, observe, backups, offMachine, moves } = engine;
  const { place, from, to } = moves;
  return {
    ...engine,
    lifecycle: {
      ...lifecycle,
      converge: async (spec, begin) =>
        cleanVerdict(await cleaned(clean, () => lifecycle.converge(spec, begin)), clean),
      remove: async (id, parent, begin) =>
        cleanVerdict(await cleaned(clean, () => lifecycle.remove(id, parent, begin)), clean),
    },
    sql: {
      setPassword: (...asked) => cleaned(clean, () => sql.setPassword(...asked)),
      whyNoPooler: (id) => cleaned(clean, () => sql.whyNoPooler(id)),
      query: (id, parent, statement) => cleaned(clean, () => sql.query(id, parent, statement)),
    },
    extensions:
      extensions === null
        ? null
        : {
            installed: () => extensions.installed(),
            of: (id) => cleaned(clean, () => extensions.of(id)),
          },
    observe: {
      ...observe,
      warnings: async (id) =>
        (await cleaned(clean, () => observe.warnings(id))).map((warning) => ({
          ...warning,
          message: clean(warning.message),
        })),
      logs: (id, node, query, signal) =>
        cleaned(clean, () => observe.logs(id, node, query, signal)),
      usage: (id) => cleaned(clean, () => observe.usage(id)),
      replicas: (id) => cleaned(clean, () => observe.replicas(id)),
      servers: (id) => cleaned(clean, () => observe.servers(id)),
    },
    backups: cleanBackups(backups, clean),
    offMachine: offMachine === null ? null : cleanOffMachine(offMachine, clean),
    moves: {
      place,
      from: 'why' in from ? from : cleanSource(from, clean),
      to: 'why' in to ? to : cleanTarget(to, clean),
    },
  };
}

/** The error keeps its class, and its stack the path, for the control log. */
async function cleaned<T>(clean: Clean, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof Error) error.message = clean(error.message);
    throw error;
  }
}

function cleanVerdict(verdict: Verdict, clean: Clean): Verdict {
  const detail = verdict.detail === null ? null : clean(verdict.detail);
  return verdict.outcome === 'failed'
    ? { ...verdict, detail, reason: clean(verdict.reason) }
    : { ...verdict, detail };
}

function cleanBackups(backups: BackupKeeping, clean: Clean): BackupKeeping {
  const { backUp } = backups;
  return {
    restorable: (...asked) => cleaned(clean, () => backups.restorable(...asked)),
    describe: async (id) => {
      const found = await cleaned(clean, () => backups.describe(id));
      const { snapshots, last_verification: last, problem } = found;
      return {
        ...found,
        snapshots: snapshots.map((snapshot) =>
          snapshot.verification === undefined
            ? snapshot
            : { ...snapshot, verification: cleanVerification(snapshot.verification, clean) },
        ),
        ...(last === undefined ? {} : { last_verification: cleanVerification(last, clean) }),
        problem: problem === null ? null : clean(problem),
      };
    },
    keep: (id, rules) => cleaned(clean, () => backups.keep(id, rules)),
    verify: async (spec, runStep, signal) => {
      const runCleaned = cleanSteps(runStep, clean);
      const found = await cleaned(clean, () => backups.verify(spec, runCleaned, signal));
      const { verification, restored } = found;
      return {
        verification: cleanVerification(verification, clean),
        restored: restored === null ? null : cleanRestored(restored, clean),
      };
    },
    backUp:
      backUp === null
        ? null
        : (id, wanted, runStep, signal) =>
            cleaned(clean, () => backUp(id, wanted, cleanSteps(runStep, clean), signal)),
  };
}

const cleanSteps =
  (runStep: RunStep, clean: Clean): RunStep =>
  (name, work) =>
    runStep(name, async (show) =>
      clean(await cleaned(clean, () => work((line) => show(clean(line))))),
    );

function cleanOffMachine(offMachine: OffMachineBackups, clean: Clean): OffMachineBackups {
  const cleanAll = (states: ReadonlyMap<string, OffMachineState>) =>
    new Map(
      [...states].map(([id, state]) => [
        id,
        {
          ...state,
          problem: state.problem === null ? null : clean(state.problem),
          verification:
            state.verification === null
              ? null
              : { ...state.verification, ...cleanVerification(state.verification, clean) },
        },
      ]),
    );
  return {
    ship: async (id, retentionDays, signal) => {
      const shipping = () => offMachine.ship(id, retentionDays, signal);
      const { states, ...rest } = await cleaned(clean, shipping);
      return { states: cleanAll(states), ...rest };
    },
    verify: async (spec, runStep, signal) => {
      const steps = cleanSteps(runStep, clean);
      const found = await cleaned(clean, () => offMachine.verify(spec, steps, signal));
      return {
        problem: found.problem === null ? null : clean(found.problem),
        restored: found.restored.map((one) => cleanRestored(one, clean)),
      };
    },
    describe: async (id) => cleanAll(await cleaned(clean, () => offMachine.describe(id))),
    findForeign: (data, untilMs) => cleaned(clean, () => offMachine.findForeign(data, untilMs)),
  };
}

const cleanRestored = (restored: RestoredBackup, clean: Clean): RestoredBackup => ({
  ...restored,
  checks: restored.checks.map(({ name, detail }) => ({ name, detail: clean(detail) })),
});

function cleanSource(from: MoveSource, clean: Clean): MoveSource {
  return {
    read: (id) => cleaned(clean, () => from.read(id)),
    login: (id) => cleaned(clean, () => from.login(id)),
    admit: (id, roles) => cleaned(clean, () => from.admit(id, roles)),
    progress: (id) => cleaned(clean, () => from.progress(id)),
    checkpoint: (id) => cleaned(clean, () => from.checkpoint(id)),
    withhold: (id) => cleaned(clean, () => from.withhold(id)),
    giveBack: (id) => cleaned(clean, () => from.giveBack(id)),
    stop: (id, keep) => cleaned(clean, () => from.stop(id, keep)),
    dismiss: (id) => cleaned(clean, () => from.dismiss(id)),
    retire: (id, moved) => cleaned(clean, () => from.retire(id, moved)),
  };
}

function cleanTarget(to: MoveTargetRegion, clean: Clean): MoveTargetRegion {
  return {
    describe: () => cleaned(clean, () => to.describe()),
    versions: (id) => cleaned(clean, () => to.versions(id)),
    prepare: (spec, login) => cleaned(clean, () => to.prepare(spec, login)),
    position: (id) => cleaned(clean, () => to.position(id)),
    finish: (spec) => cleaned(clean, () => to.finish(spec)),
  };
}

function cleanVerification(verification: Verification, clean: Clean): Verification {
  const { checks, problem } = verification;
  return {
    ...verification,
    checks: checks.map((check) => ({ ...check, detail: clean(check.detail) })),
    ...(problem === undefined ? {} : { problem: clean(problem) }),
  };
}
