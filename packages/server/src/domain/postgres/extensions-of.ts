/** The extensions of a service. */
import { EXTENSION_OF_ADDON, type Addon, type AddonExtension } from '@howdah/contract';
import { needsPreload } from './extension-rules.ts';

type Extended = Readonly<{ addons: readonly Addon[]; preload: readonly string[] }>;

/** The extensions of add-ons. */
export const extensionsOf = (addons: readonly Addon[]): AddonExtension[] =>
  addons.map((addon) => EXTENSION_OF_ADDON[addon]);

/** The extensions of a service whose libraries may have to be loaded. */
export const loadedExtensions = ({ addons, preload }: Extended): string[] => [
  ...new Set<string>([...extensionsOf(addons), ...preload]),
];

/** The libraries that its servers load at their start. */
export const loadedLibraries = ({ addons, preload }: Extended): string[] => [
  ...new Set<string>([...extensionsOf(addons).filter(needsPreload), ...preload]),
];
