/** Which instances of a service there are on the disk, and which of them is its primary. */
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { InstancePaths } from '../host/layout.ts';
import type { Machine } from '../host/machine-record.ts';

/** The numbers of the instances that there is anything of on the disk. */
export async function instanceNumbers(
  { layout }: Pick<Machine, 'layout'>,
  id: string,
): Promise<number[]> {
  const { root, data } = layout.service(id);
  const others = await readdir(join(root, 'members')).catch(() => []);
  return [...(existsSync(data) ? [0] : []), ...others.map(Number)];
}

/** The paths of the instance that accepts writes. */
export function primaryPaths({ layout }: Pick<Machine, 'layout'>, id: string): InstancePaths {
  return layout.member(id, layout.primaryOf(id));
}

/** The server whose log is shown for a service: its primary, or the first node of a set. */
export async function firstNode(machine: Pick<Machine, 'layout'>, id: string): Promise<number> {
  const primary = machine.layout.primaryOf(id);
  const numbers = await instanceNumbers(machine, id);
  return numbers.includes(primary) ? primary : Math.min(...numbers, 1);
}
