/** Why a service is slow just now, in words. */
import { SHARED_CPU_MILLIS } from './sizes.ts';

type Wait = { readonly millis: number; readonly neighbours?: number | undefined };

/** The parts of a service that the sentence needs. */
type Waiting = {
  readonly waits?: { readonly cpu?: Wait | undefined; readonly writes?: Wait | undefined };
  readonly metrics: { readonly milli_cpu: number | null };
  readonly resources: readonly {
    readonly spec: {
      readonly cpu_millis?: number | undefined;
      readonly cpu_bound?: boolean | undefined;
    };
  }[];
};

/** The reason of a notable wait of a service, and who else wants the same; null: there is none. */
export function waitingNote({ waits, metrics, resources }: Waiting): string | null {
  const guaranteed = resources[0]?.spec.cpu_millis ?? SHARED_CPU_MILLIS;
  const isBound = resources[0]?.spec.cpu_bound === true;
  const isBeyond = !isBound && (metrics.milli_cpu ?? 0) > guaranteed;
  const notes = [
    ...(waits?.writes === undefined ? [] : [writesNote(waits.writes)]),
    ...(waits?.cpu === undefined ? [] : [cpuNote(waits.cpu, isBeyond, isBound)]),
  ];
  return notes.length === 0 ? null : notes.join('; ');
}

function writesNote({ neighbours = 0 }: Wait): string {
  if (neighbours === 0) return 'waits for the disk: it writes as much as it may';
  return `waits for the disk: ${counted(neighbours)} ${neighbours === 1 ? 'writes' : 'write'} too`;
}

/**
 * @param isBeyond whether it uses more than its guarantee: a larger size would help
 * @param isBound whether it may not use more
 */
function cpuNote({ neighbours = 0 }: Wait, isBeyond: boolean, isBound: boolean): string {
  const others = `${counted(neighbours)} ${neighbours === 1 ? 'uses' : 'use'} it too`;
  const reasons = [
    ...(neighbours === 0 ? [] : [others]),
    ...(isBeyond ? ['it uses more than its guarantee'] : []),
    ...(isBound ? ['its size bounds it'] : []),
  ];
  return reasons.length === 0 ? 'waits for CPU' : `waits for CPU: ${reasons.join(', and ')}`;
}

const counted = (neighbours: number): string =>
  neighbours === 1 ? '1 neighbour' : `${neighbours} neighbours`;
