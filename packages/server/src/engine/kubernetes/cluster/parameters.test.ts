import { expect, test } from 'vitest';
import { serverSettings } from '../../../domain/postgres/settings.ts';
import { clusterParameters } from './parameters.ts';

test('settings that initdb takes from the locale are set, others keep their defaults', () => {
  for (const major of [16, 18]) {
    const settings = serverSettings({ size: 'shared', major, extensions: [], storageGb: 10 });
    expect(settings['default_text_search_config']).toBe("'pg_catalog.english'");
    expect(settings).not.toHaveProperty('log_checkpoints');
    expect(clusterParameters(settings)).toMatchObject({
      default_text_search_config: 'pg_catalog.english',
      lc_messages: major === 16 ? 'C.UTF-8' : 'C',
    });
  }
});
