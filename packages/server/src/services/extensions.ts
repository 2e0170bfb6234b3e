/** Extensions of services: what there is, enable, disable. */
import { ApiError, EXTENSION_OF_ADDON, whyKept, type ServiceExtension } from '@howdah/contract';
import type { ServiceRow } from '../domain/service/row.ts';
import type { Engine } from '../engine/engine.ts';
import type { Region } from '../engine/regions.ts';
import type { Caller } from './change.ts';
import type { ControlContext } from './control-context.ts';
import { refuseImpossible, regionOrRefuse } from './regions.ts';
import { type Accepted, changeUnderRules, reachEngine } from './service-rules.ts';
import { readAddons, type ServicePlace } from '../store/service-documents.ts';

/** Lists the extensions of each PostgreSQL of a region. @param code default: the first region */
export async function listExtensions({ regions }: ControlContext, code: string | undefined) {
  const { region, alias } = regionOrRefuse(regions, code);
  const all = await listInstalled(region.engine);
  return all.map((one) => ({ region_code: alias ?? region.code, ...one }));
}

async function listInstalled({ extensions }: Pick<Engine, 'extensions'>) {
  return extensions === null ? [] : extensions.installed();
}

/** Lists the extensions that a service has or can have. */
export async function listServiceExtensions(
  { regions, store }: ControlContext,
  { key: id, region_code: region }: ServicePlace,
): Promise<ServiceExtension[]> {
  const { extensions } = regions.of(region).engine;
  if (extensions === null) return [];
  const all = await reachEngine(() => extensions.of(id));
  const addons = await readAddons(store.db, id);
  return all.map((extension) => {
    const kept = whyKept(extension.name, addons);
    return kept === null ? extension : { ...extension, kept };
  });
}

/** Creates an extension in the database of a service; loads its library before, if it has one. */
export async function enableExtension(
  context: ControlContext,
  caller: Caller,
  place: ServicePlace,
  name: string,
): Promise<Accepted> {
  refuseImpossible(context.regions.of(place.region_code), 'enableExtension');
  const all = await listServiceExtensions(context, place);
  const extension = allowedOrRefuse(all, name);
  const decide = ({ addons, preload }: ServiceRow) => {
    const isLoaded = !extension.preload || isOfAddon(addons, name) || preload.includes(name);
    // A fork to a point in time can have the extension, and the libraries of a later one.
    if (extension.state === 'enabled' && isLoaded) return null;
    return {
      preload: isLoaded ? preload : [...preload, name].toSorted(),
      creates_extension: name,
    };
  };
  return changeUnderRules(context, caller, place.key, 'enableExtension', decide, 'enableExtension');
}

/** Drops an extension, which nothing may depend on, and unloads its library. */
export async function disableExtension(
  context: ControlContext,
  caller: Caller,
  place: ServicePlace,
  name: string,
): Promise<Accepted> {
  refuseImpossible(context.regions.of(place.region_code), 'disableExtension');
  const all = await listServiceExtensions(context, place);
  const extension = all.find((one) => one.name === name);
  if (extension === undefined)
    throw new ApiError(
      'NOT_FOUND',
      `extension_name: ${JSON.stringify(name.slice(0, 64))} is no extension of this service; ` +
        'GET …/extensions lists them',
    );
  const decide = ({ addons, preload }: ServiceRow) => {
    const kept = whyKept(name, addons);
    if (kept !== null) throw new ApiError('INVALID_REQUEST', `extension_name: ${kept}`);
    if (extension.state !== 'enabled' && !preload.includes(name)) return null;
    return { preload: preload.filter((one) => one !== name), drops_extension: name };
  };
  return changeUnderRules(
    context,
    caller,
    place.key,
    'disableExtension',
    decide,
    'disableExtension',
  );
}

const isOfAddon = (addons: ServiceRow['addons'], name: string): boolean =>
  addons.some((addon) => EXTENSION_OF_ADDON[addon] === name);

/** @throws ApiError when it is not installed, not allowed, or needs another one first */
function allowedOrRefuse(all: readonly ServiceExtension[], name: string): ServiceExtension {
  const found = all.find((extension) => extension.name === name && extension.kind === 'extension');
  if (found === undefined)
    throw new ApiError(
      'UNAVAILABLE_HERE',
      `${name}: the PostgreSQL of this service does not have it; the operator can add it: ` +
        `howdah extension install ${name}`,
    );
  if (!found.allowed) throw new ApiError('UNAVAILABLE_HERE', `${name}: ${found.reason}`);
  if (found.state === 'enabled') return found;
  const missing = all.filter(
    (other) => found.requires.includes(other.name) && other.state === 'disabled',
  );
  if (missing.length > 0)
    throw new ApiError(
      'INVALID_REQUEST',
      `name: ${name} requires ${missing.map((other) => other.name).join(', ')}: enable that first`,
    );
  return found;
}

/**
 * Refuses data whose servers load libraries that the PostgreSQL of its version does not have here.
 *
 * @param field of the request
 */
export async function refuseMissingLibraries(
  { engine }: Pick<Region, 'engine'>,
  preload: readonly string[],
  major: number,
  field: string,
): Promise<void> {
  if (preload.length === 0) return;
  const usable = (await listInstalled(engine))
    .filter(({ postgres_version: version }) => Number.parseInt(version, 10) === major)
    .flatMap(({ extensions }) => extensions)
    .filter((one) => one.allowed && one.preload);
  const missing = preload.filter((name) => !usable.some((one) => one.name === name));
  if (missing.length > 0)
    throw new ApiError(
      'UNAVAILABLE_HERE',
      `${field}: its PostgreSQL loads ${missing.join(', ')}, which PostgreSQL ${major} does not ` +
        'have here or which is not allowed: howdah extension installed lists those',
    );
}
