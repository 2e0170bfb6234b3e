/**
 * Writes openapi/openapi.json from the routes, the client's types from that, docs/messages.md and
 * docs/connecting.md from the sources, and the settings of `howdah up` and of
 * docs/configuration.md from their schema. With --check it writes nothing, and fails if one of them
 * is not up to date.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { createOpenApiDocument } from '@howdah/server/api/openapi';
import openapiTS, { astToString } from 'openapi-typescript';
import { messagesPage } from '../check/messages.ts';
import { connectingPage } from './connecting.ts';
import { settingsModule, withSettingsTable } from './settings.ts';

const root = new URL('../../', import.meta.url);
const check = process.argv.includes('--check');

const document = await createOpenApiDocument();
const json = `${JSON.stringify(document, null, 2)}\n`;
const typed = JSON.stringify(await createOpenApiDocument({ dryRuns: false }));
const types =
  '// Generated from openapi/openapi.json by `npm run generate`.\n' +
  astToString(await openapiTS(typed, { defaultNonNullable: false }));

const manual = await readFile(new URL('docs/configuration.md', root), 'utf8');

let stale = false;
for (const [path, text] of [
  ['openapi/openapi.json', json],
  ['packages/client/src/generated/api.ts', types],
  ['packages/cli/src/generated/settings.ts', settingsModule()],
  ['docs/configuration.md', withSettingsTable(manual)],
  ['docs/connecting.md', connectingPage()],
  ['docs/messages.md', messagesPage(fileURLToPath(root))],
] as const) {
  const url = new URL(path, root);
  const current = await readFile(url, 'utf8').catch(() => '');
  if (current === text) continue;
  stale = true;
  if (!check) await writeFile(url, text);
  process.stdout.write(`${check ? 'not up to date' : 'written'}: ${fileURLToPath(url)}\n`);
}
if (check && stale) {
  process.stdout.write('run: npm run generate\n');
  process.exitCode = 1;
}
