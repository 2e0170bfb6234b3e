/** The size that a server was started with, as its command line says. */
import type { Size } from '@howdah/contract';

/**
 * A size as a command line has it, with the libraries beside those of the add-ons: a server with
 * others has to be started again.
 */
export function sizeLabel(size: Size, libraries: readonly string[] = []): string {
  const label = size === 'shared' ? 'shared' : `${size.cpuMillis}m-${size.memoryGbs}g`;
  return [label, ...libraries.toSorted()].join('+');
}

/**
 * Compares a server's size and libraries with the desired ones, by their labels: "500m-2g+pgaudit".
 * A larger size, or more libraries, may need larger settings of standbys.
 */
export function compareSizes(
  label: string | null,
  size: Size,
  libraries: readonly string[] = [],
): 'current' | 'smaller' | 'larger' {
  const wanted = sizeLabel(size, libraries);
  if (label === wanted) return 'current';
  const memory = (text: string): number => Number(/-(\d+)g(?:\+|$)/.exec(text)?.[1] ?? '0');
  const [before, after] = [memory(label ?? ''), memory(wanted)];
  if (before !== after) return before < after ? 'smaller' : 'larger';
  return (label ?? '').split('+').length - 1 < libraries.length ? 'smaller' : 'larger';
}
