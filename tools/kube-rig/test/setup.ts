/** Ends a run of the project `kubernetes` at once where it has no cluster. */
import { readRig } from './rig.ts';

export function setup(): void {
  readRig();
}
