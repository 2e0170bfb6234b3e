/** The extensions of a model engine: a few, of each kind. */
import type { Extension } from '@howdah/contract';
import type { Extensions } from '../engine.ts';
import { MODEL_VERSIONS } from './changes.ts';
import { runs } from './lifecycle.ts';
import type { Model } from './model.ts';

const extension = (
  name: string,
  comment: string,
  more: Partial<Pick<Extension, 'allowed' | 'reason' | 'preload'>> = {},
): Extension => ({
  name,
  kind: 'extension',
  default_version: '1.0',
  versions: ['1.0'],
  comment,
  requires: [],
  allowed: true,
  reason: 'simulated: no PostgreSQL runs',
  preload: false,
  ...more,
});

const EXTENSIONS: readonly Extension[] = [
  extension('pageinspect', 'inspect the contents of database pages', {
    allowed: false,
    reason: 'its functions are for superusers, and tsdbadmin is none',
  }),
  extension('pg_prewarm', 'prewarm relation data', { preload: true }),
  extension('pgstattuple', 'show tuple-level statistics'),
  extension('plpgsql', 'PL/pgSQL procedural language'),
  extension('timescaledb', 'time-series data', { preload: true }),
  extension('vector', 'vector data type and its indexes'),
];

export function createExtensions({ state }: Model, open: () => Promise<void>): Extensions {
  return {
    installed: async () =>
      MODEL_VERSIONS.map(({ version }) => ({
        postgres_version: version,
        source: 'simulated',
        timescaledb_edition: 'community',
        extensions: [...EXTENSIONS],
      })),
    of: async (id) => {
      await open();
      const service = state.find(id);
      const created = ['plpgsql', ...(service?.extensions ?? [])];
      return EXTENSIONS.map((one) => {
        if (!runs(service)) return { ...one, state: 'unknown' };
        return created.includes(one.name)
          ? { ...one, state: 'enabled', version: '1.0' }
          : { ...one, state: 'disabled' };
      });
    },
  };
}
