/**
 * Makes the pictures of the README from a real installation, which it starts in a directory of its
 * own and removes: `npx tsx tools/pictures/pictures.ts`. Needs Chromium and psql.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify, stripVTControlCharacters } from 'node:util';
import { launch } from '../../packages/console/test/browser.ts';
import { drawTerminal, type Recorded } from './terminal.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const TARGET = join(ROOT, 'docs/pictures');
const PORT = '18321';

const home = mkdtempSync(join(tmpdir(), 'howdah-pictures.'));
const environment = { ...process.env, HOWDAH_HOME: home, HOWDAH_PORT: PORT, HOWDAH_INSTALL: 'no' };

async function howdah(line: string): Promise<string> {
  const { stdout, stderr } = await promisify(execFile)(join(ROOT, 'howdah'), line.split(' '), {
    env: environment,
  });
  return `${stderr}${stdout}`.replaceAll(home, '~/.howdah');
}

/** Starts the control plane. @returns a link to the console */
async function start(): Promise<string> {
  const plane = spawn(join(ROOT, 'howdah'), ['up'], {
    env: environment,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let said = '';
  for await (const chunk of plane.stdout) {
    said += String(chunk);
    const link = /console +(http\S+)/.exec(stripVTControlCharacters(said))?.[1];
    if (link !== undefined && said.includes('Ctrl-C')) return link;
  }
  await once(plane, 'close');
  throw new Error(`howdah up ended: ${said}`);
}

/** Commands with their outputs, as a terminal shows them. Passwords are only of this recording. */
async function record(): Promise<Recorded[]> {
  const lines = [
    'service create --name shop',
    'service fork shop --name shop-migration',
    'backup verify shop',
    'service list',
  ];
  const recorded: Recorded[] = [];
  for (const line of lines) {
    const beganMs = performance.now();
    const output = await howdah(line);
    recorded.push({ line: `howdah ${line}`, output, ms: performance.now() - beganMs });
  }
  return recorded;
}

async function photograph(link: string, target: string): Promise<void> {
  const browser = await launch();
  try {
    const page = await browser.newPage({ viewport: { width: 1280, height: 720 } });
    await page.goto(link);
    await page.getByRole('link', { name: 'shop-migration' }).waitFor();
    await page.waitForLoadState('networkidle');
    await page.screenshot({ path: target });
  } finally {
    await browser.close();
  }
}

mkdirSync(TARGET, { recursive: true });
try {
  const link = await start();
  const recorded = await record();
  writeFileSync(join(TARGET, 'terminal.svg'), drawTerminal(recorded));
  for (const line of ['create --name reports', 'create --name orders --environment PROD'])
    await howdah(`service ${line}`);
  await photograph(link, join(TARGET, 'console.png'));
} finally {
  await howdah('down --databases');
  rmSync(home, { recursive: true, force: true });
}
