import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { listSettings } from '@howdah/server/settings';
import { settingsModule, withSettingsTable } from './settings.ts';

const page = readFileSync(new URL('../../docs/configuration.md', import.meta.url), 'utf8');
const module = readFileSync(
  new URL('../../packages/cli/src/generated/settings.ts', import.meta.url),
  'utf8',
);
const others = listSettings().map((setting) =>
  setting.name === 'HOWDAH_SPARES' ? { ...setting, default: '2' } : setting,
);

describe('the table of settings in docs/configuration.md', () => {
  test('says what the schema says, and nothing else', () => {
    expect(withSettingsTable(page)).toBe(page);
    expect(withSettingsTable(page, others)).not.toBe(page);
  });

  test('is restored where somebody has changed it', () => {
    expect(withSettingsTable(page.replace('| `--spares` | 1 |', '| `--spares` | 3 |'))).toBe(page);
    expect(withSettingsTable(page.replace(/\n\| `HOWDAH_PORT` .*/, ''))).toBe(page);
  });

  test('needs its markers', () => {
    expect(() => withSettingsTable('no table')).toThrow('one table of settings');
    expect(() => withSettingsTable(page + page)).toThrow('one table of settings');
  });
});

test('the options of howdah up say what the schema says', () => {
  expect(settingsModule()).toBe(module);
  expect(settingsModule(others)).not.toBe(module);
});
