/**
 * Upgrades of services to another major version of PostgreSQL, as far as they concern an engine.
 */
import type { Addon } from '@howdah/contract';
import type { RunStep } from './run-step.ts';
import type { ServiceSpec } from './spec.ts';

/** Changes of the major version of data. */
export interface Upgrades {
  /** Why a fork of now, or of the last snapshot, cannot have this newer major; null: it can. */
  whyNotConverted(addons: readonly Addon[], major: number): string | null;
  /** Copies data into a newer version, and removes the copy. @throws Error when that fails */
  tryUpgrade(spec: ServiceSpec, to: number, runStep: RunStep, signal: AbortSignal): Promise<void>;
}

/** Why the data of services keeps its major version, in words for users. */
export type NoUpgrades = { readonly why: string };

/** Why data of services with these add-ons cannot become that of a newer major; null: it can. */
export const whyNotConverted = (
  upgrades: Upgrades | NoUpgrades,
  addons: readonly Addon[],
  major: number,
): string | null => ('why' in upgrades ? upgrades.why : upgrades.whyNotConverted(addons, major));
