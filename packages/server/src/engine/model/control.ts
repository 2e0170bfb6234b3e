/** The changes that the operator makes from outside: of the script, the clock and the servers. */
import { SimulationScriptSchema, type SimulationScript } from '@howdah/contract';
import { Check } from 'typebox/value';
import type { Simulation } from '../engine.ts';
import * as change from './server-changes.ts';
import { announceAt, type Model } from './model.ts';
import { noticeDeath } from './primary.ts';
import type { ScriptEvent } from '@howdah/contract';
import { EMPTY_SCRIPT, parseScript } from './script.ts';
import { primaryOf, rowsAt, type ModelRegion } from './state.ts';

export type ModelControl = Simulation & {
  /** Ends a server as a crash would. @param node null: the primary @returns whether one ran */
  kill: (id: string, node: number | null) => Promise<boolean>;
  /** Writes rows, as a client would. @throws Error when the service does not accept writes */
  write: (id: string, rows: number) => Promise<void>;
  /** The number of rows that a client reads; null: the service does not answer. */
  countRows: (id: string) => Promise<number | null>;
};

export function createControl(model: Model, open: () => Promise<void>): ModelControl {
  const { state, clock } = model;
  return {
    setScript: async (value) => {
      const script = parseScript(value);
      await open();
      // Before the time is saved: a manual clock stops here.
      clock.setRunning(script.clock === 'real');
      await state.changeRegion((region) => {
        Object.assign(region, { script: value, scriptSetMs: clock.nowMs() });
        Object.assign(region, { begun: {}, happened: [], ...timesOf(model) });
      });
      model.script = script;
      for (const { id, pending } of state.list()) {
        if (pending === null) continue;
        await state.change(id, (service) => {
          service.pending = null;
        });
        model.changed(id);
      }
      await setAlarms(model);
    },
    script: async () => {
      await open();
      return scriptOf(state.region().script);
    },
    nowMs: async () => {
      await open();
      return clock.nowMs();
    },
    advance: async (ms) => {
      await open();
      await clock.advance(ms);
      await saveTime(model);
    },
    kill: async (id, node) => {
      await open();
      return kill(model, id, node);
    },
    write: async (id, rows) => {
      await open();
      await write(model, id, rows);
    },
    countRows: async (id) => {
      await open();
      const service = state.find(id);
      if (service === null || !service.nodes.some(({ runs }) => runs)) return null;
      const owner = service.parent === null ? service : state.find(service.parent);
      return owner === null ? null : rowsAt(owner, clock.nowMs());
    },
  };
}

/** The script as it was set, which was checked then. */
function scriptOf(value: unknown): SimulationScript {
  return Check(SimulationScriptSchema, value) ? value : {};
}

/** Reads the state, once, and continues its clock and its script. */
export function reopen(model: Model): () => Promise<void> {
  const { state, clock } = model;
  let opened: Promise<void> | null = null;
  const read = async (): Promise<void> => {
    await state.open();
    const { nowMs, aheadMs, script } = state.region();
    model.script = isEmpty(script) ? EMPTY_SCRIPT : parseScript(script);
    const isRunning = model.script.clock === 'real';
    clock.setRunning(isRunning);
    clock.startAt(isRunning ? Math.max(nowMs, model.realMs() + aheadMs) : nowMs);
    for (const { id, pending } of state.list())
      if (pending !== null) announceAt(model, id, pending.doneMs);
    await setAlarms(model);
  };
  return () =>
    (opened ??= read().catch((error: unknown) => {
      opened = null;
      throw error;
    }));
}

const isEmpty = (script: unknown): boolean => JSON.stringify(script) === '{}';

/** The time of the clock, and how far it is ahead of real time. */
function timesOf({ clock, realMs }: Model): Pick<ModelRegion, 'nowMs' | 'aheadMs'> {
  return { nowMs: clock.nowMs(), aheadMs: Math.max(0, clock.nowMs() - realMs()) };
}

const saveTime = (model: Model): Promise<void> =>
  model.state.changeRegion((region) => {
    Object.assign(region, timesOf(model));
  });

/** Sets an alarm for each event that has not happened; those of now happen at once. */
async function setAlarms(model: Model): Promise<void> {
  const { state, clock, script } = model;
  const { scriptSetMs, happened } = state.region();
  for (const [index, event] of script.events.entries()) {
    if (happened.includes(index)) continue;
    const happen = async (): Promise<void> => {
      // Another script was set meanwhile.
      if (model.script !== script) return;
      await state.changeRegion((region) => {
        region.happened.push(index);
      });
      await perform(model, event);
    };
    const atMs = scriptSetMs + (event.after_ms ?? 0);
    if (atMs <= clock.nowMs()) await happen();
    else clock.alarmAt(atMs, happen);
  }
}

async function perform(model: Model, event: ScriptEvent): Promise<void> {
  try {
    if (event.event === 'write') await write(model, event.service_id, event.rows ?? 1);
    else await kill(model, event.service_id, event.node ?? null);
  } catch (error) {
    process.emitWarning(`an event of the script did not happen: ${String(error)}`);
  }
}

async function kill(model: Model, id: string, node: number | null): Promise<boolean> {
  const { state, clock } = model;
  if (state.find(id) === null) return false;
  const isKilled = await state.change(id, (service) => {
    const n = node ?? primaryOf(service)?.n ?? service.nodes[0]?.n;
    const server = service.nodes.find((one) => one.n === n);
    if (server?.runs !== true) return false;
    change.stopServer(service, server.n, clock.nowMs(), 'killed');
    return true;
  });
  if (isKilled) await noticeDeath(model, id);
  return isKilled;
}

async function write({ state, clock }: Model, id: string, rows: number): Promise<void> {
  const service = state.find(id);
  if (service === null || primaryOf(service)?.runs !== true)
    throw new Error(`service ${id} accepts no writes: its primary does not run`);
  await state.change(id, (changed) => {
    changed.commits.push({ atMs: clock.nowMs(), rows });
  });
}
