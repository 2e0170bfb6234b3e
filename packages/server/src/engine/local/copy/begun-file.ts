/** Beside the data of a copy: that its promotion has begun. It does not follow from then on. */
import { join } from 'node:path';
import { writeDurably } from '../../../lib/durable.ts';
import { readNow } from '../../../lib/processes.ts';
import type { InstancePaths } from '../host/layout.ts';
import { rm } from '../host/root-files.ts';
import { formatLsn, parseLsn } from '../postgres/wal.ts';

const pathOf = ({ root }: InstancePaths): string => join(root, 'promotion');

/** @param shutdown the position of the shutdown by which the WAL of its service ends */
export async function writeBegun(paths: InstancePaths, shutdown: bigint): Promise<void> {
  await writeDurably(pathOf(paths), `${formatLsn(shutdown)}\n`, 0o600);
}

/** null: its promotion has not begun. */
export function readBegun(paths: InstancePaths): bigint | null {
  const text = readNow(pathOf(paths))?.trim() ?? '';
  return /^[0-9A-F]+\/[0-9A-F]+$/.test(text) ? parseLsn(text) : null;
}

export async function forgetBegun(paths: InstancePaths): Promise<void> {
  await rm(pathOf(paths), { force: true });
}
