/** How busy this machine is: a test that failed may have lacked a processor or a disk. */
import { readFileSync } from 'node:fs';
import { loadavg } from 'node:os';

/** @returns the load average, and the shares of the last 10 s in which something waited */
export function loadNow(): string {
  const averages = loadavg().map((load) => load.toFixed(1));
  const waits = ['cpu', 'io', 'memory'].flatMap((resource) => {
    const percent = pressureIn(pressureFileOf(resource));
    return percent === null ? [] : [`${resource} ${percent} %`];
  });
  return `load ${averages.join(' ')}${waits.length === 0 ? '' : `; waits: ${waits.join(', ')}`}`;
}

/** A kernel without pressure stall information has no such file. */
function pressureFileOf(resource: string): string {
  try {
    return readFileSync(`/proc/pressure/${resource}`, 'utf8');
  } catch {
    return '';
  }
}

/** @returns the percentage of the last 10 s in which some process waited, null if unknown */
export function pressureIn(file: string): number | null {
  const [, percent] = /^some avg10=([\d.]+)/m.exec(file) ?? [];
  return percent === undefined ? null : Math.round(Number(percent));
}
