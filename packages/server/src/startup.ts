/** The arguments of every part of a start, and how a stop undoes it. */
import type { FastifyBaseLogger } from 'fastify';
import type { Config } from './config.ts';
import type { Machine } from './engine/local/host/machine-record.ts';
import type { Rounds } from './lib/rounds.ts';
import type { Tuning } from './lib/tuning.ts';
import type { CertificateAuthority } from './lib/tls.ts';
import type { Standby } from './standby.ts';

/** Called after each part of the start, with its duration. */
export type Progress = (step: string, ms: number) => void;

/** The functions that end the parts that have begun, in the order of beginning. */
export type Closers = (() => Promise<unknown> | void)[];

export type Startup = Readonly<{
  config: Config;
  /** null: this machine runs no services. */
  machine: Machine | null;
  /** Answers until the API does; null: nothing does. */
  standby: Standby | null;
  authority: CertificateAuthority;
  log: FastifyBaseLogger;
  tuning: Tuning;
  rounds: Rounds;
  timed: Timed;
  closers: Closers;
}>;

/** Runs a part of the start and reports its duration. */
export type Timed = <T>(step: string, work: () => Promise<T>) => Promise<T>;

export function timer(progress: Progress): Timed {
  return async (step, work) => {
    const begun = performance.now();
    const result = await work();
    progress(step, performance.now() - begun);
    return result;
  };
}

/** Ends what has begun, the newest part first: for a stop, and for a start that fails. */
export async function closeAll(closers: Closers): Promise<void> {
  for (const close of closers.splice(0).toReversed()) await close();
}
