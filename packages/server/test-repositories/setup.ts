/** Ends a run of the project `repositories` at once where pgBackRest is missing, or too old. */
import { findPgBackRest, whyNotServed } from '../test/probe.ts';

export async function setup(): Promise<void> {
  const problem = whyNotServed(await findPgBackRest(), 17);
  if (problem !== null) throw new Error(problem);
}
