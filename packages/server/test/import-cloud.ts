/** An installation and a source, and the command line that imports from the one into the other. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Client } from 'pg';
import { expect } from 'vitest';
import { connectTo, HOWDAH, install, type Installation } from './harness.ts';
import { SOURCE_BIN, startSource, WHY_NOT, type Source } from './import-source.ts';
import { until } from './until.ts';

export let cloud: Installation;

export let source: Source;

/** The directory of the state of imports. */
export let state: string;

export const canRun = SOURCE_BIN !== null;
/** TimescaleDB's module, in the newest PostgreSQL of the system. */
export const TIMESCALE =
  SOURCE_BIN !== null && existsSync(join(SOURCE_BIN, '../lib/timescaledb.so')) ? SOURCE_BIN : null;
/** The title of a test that needs a source. */
export const title = (name: string): string => (canRun ? name : `${name} (${WHY_NOT})`);

export async function setUp(): Promise<void> {
  cloud = await install();
  state = await mkdtemp(join(tmpdir(), 'hd-state-'));
  cloud.env['XDG_STATE_HOME'] = state;
  if (canRun) source = await startSource();
}

export async function tearDown(): Promise<void> {
  await source?.destroy();
  await rm(state, { recursive: true, force: true });
  expect(await cloud?.destroy()).toEqual([]);
}

export type Running = { output: () => string; ended: Promise<number | null>; kill: () => void };

/** Starts the command line, and leaves it running. */
export function begin(...args: string[]): Running {
  const child = spawn(process.execPath, [HOWDAH, ...args], {
    env: { ...cloud.env, NO_COLOR: '1' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (part: string) => (text += part));
  child.stderr.setEncoding('utf8').on('data', (part: string) => (text += part));
  const ended = once(child, 'close').then(() => child.exitCode);
  return { output: () => text, ended, kill: () => void child.kill('SIGKILL') };
}

/** Waits for a text that a running command prints. */
export async function untilPrinted(running: Running, text: string): Promise<void> {
  let isOver = false;
  void running.ended.then(() => (isOver = true));
  const isPrinted = (): boolean => running.output().includes(text);
  await until(`the command prints ${text} or ends`, () => isPrinted() || isOver);
  if (!isPrinted()) throw new Error(`ended without ${text}: ${running.output()}`);
}

/** The password of a new service, which the command line prints once. */
export const passwordIn = (output: string): string => {
  const found = /tsdbadmin:([^@]+)@/.exec(output)?.[1];
  if (found === undefined) throw new Error(`no password: ${output}`);
  return decodeURIComponent(found);
};

/** Connects to a service by its name. */
export async function connectBy(name: string, password: string): Promise<Client> {
  const { body } = await cloud.request('GET', '/services');
  const services: unknown[] = Array.isArray(body) ? body : [];
  const found = services.find((one) => Reflect.get(Object(one), 'name') === name);
  const endpoint = Object(Reflect.get(Object(found), 'endpoint'));
  const [host, port] = [
    String(Reflect.get(endpoint, 'host')),
    Number(Reflect.get(endpoint, 'port')),
  ];
  return connectTo(cloud, { endpoint: { host, port } }, password);
}
