/** The facts of a fork that are those of its parent. */
import type { Addon, Size } from '@howdah/contract';
import type { Origin } from '../../engine/spec.ts';
import type { ServiceRow } from './row.ts';
import { sizeOf } from './spec.ts';

/** The facts of a fork that are those of its parent, unless the call asks for others. */
export const inheritedByFork = ({ preload, storage_gb, cpu_bound }: ServiceRow) => ({
  preload,
  storage_gb,
  cpu_bound,
});

/** A fork of the parent as it is now, of its version and size. */
export const forkOfNow = (
  parent: ServiceRow,
): { addons: readonly Addon[]; major: number | null; size: Size; origin: Origin } => ({
  addons: parent.addons,
  major: parent.pg_version,
  size: sizeOf(parent),
  origin: { parent: parent.id, strategy: 'NOW', targetTime: null },
});

/**
 * The facts that a fork for leases and its parent must agree in when it is handed out: it is as
 * private as its parent is now, and has and takes what its parent does. Its quota is compared too.
 */
export const COLUMNS_OF_LEASED_FORK = [
  'vpc_id',
  'allow_list_id',
  'pg_version',
  'addons',
  'preload',
  'cpu_millis',
  'memory_gbs',
  'cpu_bound',
] as const satisfies readonly (keyof ServiceRow)[];
