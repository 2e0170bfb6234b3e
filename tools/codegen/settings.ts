/**
 * What is generated from the schema of the settings: the options of `howdah up`, and a table of
 * docs/configuration.md.
 */
import { listSettings, type SettingText } from '@howdah/server/settings';

const BEGIN =
  '<!-- settings: `npm run generate` writes this table from packages/server/src/settings.ts -->\n';
const END = '<!-- end of settings -->';

/** @returns the page with the table of settings between its markers */
export function withSettingsTable(page: string, settings = listSettings()): string {
  const [before, rest, ...more] = page.split(BEGIN);
  const end = rest?.indexOf(END) ?? -1;
  if (before === undefined || rest === undefined || more.length > 0 || end === -1)
    throw new Error(`the page must have one table of settings, between ${BEGIN.trim()} and ${END}`);
  return `${before}${BEGIN}\n${settingsTable(settings)}\n${rest.slice(end)}`;
}

function settingsTable(settings: readonly SettingText[]): string {
  const rows = settings.map(
    ({ name, flag, default: fallback, allowed, meaning }) =>
      `| \`${name}\` | \`${flag}\` | ${fallback} | ${allowed} | ${meaning} |\n`,
  );
  return (
    '| variable | flag | default | allowed | meaning |\n|---|---|---|---|---|\n' + rows.join('')
  );
}

/**
 * @returns the module of the command line: it must not load the schema, as every command reads it
 */
export function settingsModule(settings = listSettings()): string {
  const options = settings.map(({ name, flag, default: fallback, allowed, meaning }) => ({
    name,
    // A flag alone means yes.
    flag: `${flag} ${allowed === 'yes, no' ? '[yes]' : '<value>'}`,
    help: `${meaning} (${name}; default ${fallback}; allowed: ${allowed})`,
  }));
  return (
    '// Generated from packages/server/src/settings.ts by `npm run generate`.\n' +
    'export const SETTINGS: readonly { name: string; flag: string; ' +
    `help: string }[] = ${JSON.stringify(options, null, 2)};\n`
  );
}
