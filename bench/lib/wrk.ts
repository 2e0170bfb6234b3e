/** Load from wrk, and peers in other processes. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { atEnd } from './cleanup.ts';
import type { Sample } from './measure.ts';
import { has, run } from './run.ts';

export const WRK_MISSING = 'wrk is missing (apt-get install wrk)';

export const hasWrk = (): Promise<boolean> => has('wrk');

export type Load = {
  url: string;
  connections: number;
  seconds: number;
  headers: Record<string, string>;
  script?: string[];
};

/** One thread of load. @returns requests a second, with p50 and p99 in ms */
export async function wrk({
  url,
  connections,
  seconds,
  headers,
  script = [],
}: Load): Promise<Sample> {
  const [file, ...args] = script;
  const output = await run('wrk', [
    '-t1',
    `-c${connections}`,
    `-d${seconds}s`,
    '--latency',
    ...Object.entries(headers).flatMap(([name, value]) => ['-H', `${name}: ${value}`]),
    ...(file === undefined ? [] : ['-s', file]),
    url,
    ...(args.length === 0 ? [] : ['--', ...args]),
  ]);
  const bad =
    /Non-2xx or 3xx responses: (\d+)/.exec(output)?.[1] ?? /Socket errors: (.*)/.exec(output)?.[1];
  if (bad !== undefined) throw new Error(`wrk on ${url}: errors: ${bad}`);
  return {
    value: Number(/Requests\/sec:\s+([\d.]+)/.exec(output)?.[1]),
    parts: { p50: milliseconds(output, '50%'), p99: milliseconds(output, '99%') },
  };
}

function milliseconds(output: string, percentile: string): number {
  const [, value, unit] =
    new RegExp(`^\\s+${percentile}\\s+([\\d.]+)(us|ms|s)$`, 'm').exec(output) ?? [];
  return Number(value) * (unit === 'us' ? 0.001 : unit === 's' ? 1000 : 1);
}

/**
 * Starts a server of bench/peers in another process, which prints its port.
 *
 * @returns the port
 */
export async function startPeer(
  file: string,
  ...args: string[]
): Promise<{ port: number; end: () => Promise<void> }> {
  const child = spawn(process.execPath, ['--import', 'tsx', file, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const end = atEnd(async () => {
    if (child.exitCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    await ended;
  });
  const [line] = await Promise.race([once(child.stdout, 'data'), once(child, 'exit')]);
  const port = Number(String(line).trim());
  if (!Number.isInteger(port) || port === 0)
    throw new Error(`${file} did not start: ${String(line)}`);
  return { port, end };
}
