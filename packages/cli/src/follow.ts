/**
 * Waits for operations and prints their steps to stderr: a live list on terminals, otherwise one
 * line for each step. stdout is for data.
 */
import type { Schemas } from '@howdah/client';
import { runsBeside } from '@howdah/contract/status';
import { setTimeout as sleep } from 'node:timers/promises';
import { answered, type Connection } from './connection.ts';
import type { Waiting } from './command.ts';
import { Failure } from './exit.ts';
import { duration, endLive, note, paintNote, showLive } from './output.ts';

type Operation = Schemas['Operation'];
type Step = Operation['steps'][number];

const POLL_MS = 100;
/** Without --timeout, a wait for an operation that fails all this time ends. */
const FAILING_MS = 600_000;

/**
 * Waits for the operation that an answer names, if it names one and `--no-wait` is not given.
 *
 * @throws Failure when it failed, and when the time is over
 */
export async function follow(
  connection: Connection,
  response: Response,
  { wait, timeout }: Pick<Waiting, 'wait' | 'timeout'>,
): Promise<void> {
  const operationId = response.headers.get('Operation-Id');
  if (wait && operationId !== null) await followOperation(connection, operationId, timeout);
}

/**
 * Waits until no operation of a service is running, apart from those that run beside others.
 *
 * @throws as {@link follow}
 */
export async function followService(
  connection: Connection,
  serviceId: string,
  timeout?: number,
): Promise<void> {
  const deadline = performance.now() + (timeout ?? Infinity) * 1000;
  const query = { service_id: serviceId, status: 'running' as const };
  const params = { path: { project_id: connection.projectId }, query };
  for (;;) {
    const running = await answered(
      connection.client.GET('/projects/{project_id}/operations', { params }),
    );
    const next = running.find(({ kind }) => !runsBeside(kind));
    if (next === undefined) return;
    const leftMs = Math.max(deadline - performance.now(), 0);
    await followOperation(connection, next.id, timeout === undefined ? timeout : leftMs / 1000);
  }
}

async function followOperation(
  connection: Connection,
  operationId: string,
  timeout?: number,
): Promise<void> {
  const deadline = performance.now() + (timeout ?? Infinity) * 1000;
  const params = { path: { project_id: connection.projectId, operation_id: operationId } };
  const list = stepList();
  let [shownError, failingSinceMs] = ['', Infinity];
  for (;;) {
    const operation = await answered(
      connection.client.GET('/projects/{project_id}/operations/{operation_id}', { params }),
    );
    list.update(operation);
    const { kind, status, error } = operation;
    if (status === 'succeeded') {
      for (const line of notCarriedLines(operation.not_carried, 'was not carried over')) note(line);
      return;
    }
    if (status === 'failed') throw new Failure(`${kind} failed: ${error ?? 'no reason was given'}`);
    const nowMs = performance.now();
    // The control plane tries again until it succeeds: a failure so far is no end.
    if (error !== undefined && error !== shownError)
      note(`${paintNote.yellow('warning')} ${kind} is failing and is being tried again: ${error}`);
    shownError = error ?? '';
    failingSinceMs = error === undefined ? Infinity : Math.min(failingSinceMs, nowMs);
    const isGivenUp = timeout === undefined && nowMs - failingSinceMs > FAILING_MS;
    if (nowMs > deadline || isGivenUp) {
      list.clear();
      const state = error === undefined ? 'still runs' : 'is still being tried again';
      const seconds = Math.round(timeout ?? FAILING_MS / 1000);
      throw new Failure(
        `${kind} ${state} after ${seconds} s, and continues: howdah operation get ${operationId}`,
        'timedOut',
      );
    }
    await sleep(POLL_MS);
  }
}

/** Prints finished steps; on a terminal also the current step, with its time so far. */
function stepList() {
  const isLive = process.stderr.isTTY;
  let shown = 0;
  let live = false;
  const clear = (): void => {
    if (live) endLive();
    live = false;
  };
  const update = ({ steps, error, created, finished, kind }: Operation): void => {
    clear();
    const done = steps.filter((step) => step.finished !== null);
    for (const step of done.slice(shown)) {
      const mark = step.outcome === 'failed' ? paintNote.red('✗') : paintNote.green('✓');
      const detail = step.detail === null ? '' : `, ${step.detail}`;
      note(`${mark} ${step.name} ${paintNote.dim(`${duration(tookMs(step))}${detail}`)}`);
    }
    shown = Math.max(shown, done.length);
    if (!isLive || finished !== null || error !== undefined) return;
    const current = steps.findLast((step) => step.finished === null);
    const since = Date.parse(current?.started ?? created);
    const text = `${current?.name ?? kind} ${duration(Math.max(Date.now() - since, 0))}`;
    const columns = process.stderr.columns > 0 ? process.stderr.columns : 80;
    showLive(`${paintNote.cyan('…')} ${text.slice(0, Math.max(columns - 3, 10))}`);
    live = true;
  };
  return { update, clear };
}

/** The duration of a finished step. */
export function tookMs({ started, finished }: Step): number {
  return Date.parse(finished ?? started) - Date.parse(started);
}

/** The lines that say what an operation leaves behind. @param how the rest of the first line */
export const notCarriedLines = (left: readonly string[] | undefined, how: string): string[] =>
  left === undefined ? [] : [`this ${how}:`, ...left.map((line) => `  - ${line}`)];
