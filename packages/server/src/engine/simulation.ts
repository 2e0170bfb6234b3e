/** The part of an engine that simulates its services. */
import type { SimulationScript } from '@howdah/contract';

/** A simulation: a script of delays and faults, and a clock. */
export interface Simulation {
  /**
   * Checks a script and sets it in place of the one before. Numbers of transitions begin at 1
   * again, and delays that are running end.
   *
   * @param script `{}` delays nothing
   * @throws BadScript with all that is wrong
   */
  setScript(script: unknown): Promise<void>;
  /** The script as it was set. */
  script(): Promise<SimulationScript>;
  /** The time of the clock, in ms since the epoch. */
  nowMs(): Promise<number>;
  /** Lets time pass at once: delays end, and events of the script happen at their times. */
  advance(ms: number): Promise<void>;
}

/** The script is not one; the message has a line for each problem. */
export class BadScript extends Error {}
