/** The parts of a placement that are refused, and the credentials of registries. Pure. */
import { ApiError, type Placement } from '@howdah/contract';
import { Type } from 'typebox';
import { Value } from 'typebox/value';
import type { Sealer } from '../events/sealer.ts';

/** A config.json of docker or podman, as far as Kubernetes uses it. */
const CONFIG = Type.Object({
  auths: Type.Record(
    Type.String({ minLength: 1, maxLength: 253 }),
    Type.Object({
      auth: Type.Optional(Type.String()),
      username: Type.Optional(Type.String()),
      password: Type.Optional(Type.String()),
    }),
    { minProperties: 1, maxProperties: 64 },
  ),
});

/** Credentials of registries as they are kept. */
export type Registries = Readonly<{
  image_pull_sealed: Buffer | null;
  /** As JSON: the names of the registries. */
  image_pull_registries: string;
}>;

/** @param config null: there are none @throws ApiError INVALID_REQUEST */
export function sealedRegistries(sealer: Sealer, config: string | null): Registries {
  if (config === null) return { image_pull_sealed: null, image_pull_registries: '[]' };
  return {
    image_pull_sealed: sealer.seal(config),
    image_pull_registries: JSON.stringify(registriesIn(config)),
  };
}

/** The registries of a config.json, in order. @throws ApiError INVALID_REQUEST */
export function registriesIn(config: string): string[] {
  const parsed = parse(config);
  if (!Value.Check(CONFIG, parsed))
    throw new ApiError(
      'INVALID_REQUEST',
      'image_pull_secret: expected the config.json of docker or podman, with the credentials of ' +
        'a registry in it: {"auths":{"HOST":{"auth":"…"}}}',
    );
  const empty = Object.entries(parsed.auths).find(
    ([, { auth, username, password }]) =>
      (auth ?? '') === '' && ((username ?? '') === '' || (password ?? '') === ''),
  );
  if (empty !== undefined)
    throw new ApiError(
      'INVALID_REQUEST',
      `image_pull_secret: it has no credentials of ${empty[0]}, which a credential helper may ` +
        'keep: log in with REGISTRY_AUTH_FILE=pull.json podman login, and send that file',
    );
  return Object.keys(parsed.auths).toSorted();
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** @throws ApiError INVALID_REQUEST for two rules of one label, of which Kubernetes refuses one */
export function refusePlacement({ topology_spread: spread = [] }: Placement): void {
  const keys = spread.map(({ topology_key: key }) => key);
  const twice = keys.find((key, at) => keys.indexOf(key) !== at);
  if (twice !== undefined)
    throw new ApiError(
      'INVALID_REQUEST',
      `placement.topology_spread: two rules have the key ${twice}; leave one of them out`,
    );
}
