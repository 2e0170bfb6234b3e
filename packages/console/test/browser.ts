/** The browser that is installed, driven without one of our own being downloaded. */
import { accessSync, constants, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { delimiter, join } from 'node:path';
import { chromium, type Browser, type BrowserContext, type Page } from 'playwright-core';
import { expect } from 'vitest';
import type { Installation } from '../../server/test/harness.ts';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];

/** The path of an installed Chromium; null: there is none. */
export const CHROMIUM = findChromium();

/** Says in the title of what is skipped why it is, and the command that fixes it. */
export const NO_CHROMIUM =
  CHROMIUM === null ? ' (SKIPPED: no Chromium in PATH; apt-get install chromium)' : '';

function findChromium(): string | null {
  const places = (process.env['PATH'] ?? '')
    .split(delimiter)
    .flatMap((directory) => NAMES.map((name) => join(directory, name)));
  return (
    places.find((path) => {
      try {
        accessSync(path, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    }) ?? null
  );
}

export async function launch(): Promise<Browser> {
  if (CHROMIUM === null) throw new Error('there is no Chromium');
  // Chromium's sandbox needs privileges that root in a container has not; what it shows is ours.
  return chromium.launch({
    executablePath: CHROMIUM,
    args: ['--no-sandbox', '--disable-dev-shm-usage'],
  });
}

export type Look = { theme: 'light' | 'dark'; width: number };

/** A browser's window as one person has it, with what went wrong in it. */
export async function openWindow(
  browser: Browser,
  installation: Installation,
  { theme, width }: Look = { theme: 'light', width: 1280 },
) {
  const origin = `http://127.0.0.1:${installation.port}`;
  const context = await browser.newContext({
    baseURL: origin,
    viewport: { width, height: 860 },
    colorScheme: theme,
  });
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin });
  await context.addInitScript(NOTE_JUMPS);
  const page = await context.newPage();
  const problems: string[] = [];
  page.on('pageerror', (error) => problems.push(`an error of the page: ${error.message}`));
  page.on('console', (message) => {
    if (message.text().includes('Content Security Policy')) problems.push(message.text());
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(origin) && !request.url().startsWith('data:'))
      problems.push(`a request to ${request.url()}`);
  });
  return { context, page, problems };
}

/** Logs in with the key of the installation, as the page does. */
export async function logIn(context: BrowserContext, installation: Installation): Promise<void> {
  const answer = await context.request.post('/public/api/v1/auth/sessions', {
    headers: { Authorization: `Bearer ${installation.key}` },
  });
  expect(answer.status()).toBe(204);
}

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** The serious and the critical barriers that axe finds on a page for people with a disability. */
export async function barriers(page: Page): Promise<string[]> {
  await page.evaluate(AXE);
  const found: unknown = await page.evaluate(`
    axe.run({ resultTypes: ['violations'] }).then(({ violations }) => violations
      .filter(({ impact }) => impact === 'serious' || impact === 'critical')
      .flatMap(({ id, impact, nodes }) => nodes.map(({ target, failureSummary }) =>
        impact + ' ' + id + ' at ' + target + ': ' + failureSummary)))`);
  if (!Array.isArray(found)) throw new Error('axe answered nothing');
  return found.map(String);
}

/**
 * Adds up how far what is shown moves without being asked to (Layout Instability API), and keeps
 * what moved.
 */
const NOTE_JUMPS = `
  globalThis.jumps = { sum: 0, of: [] };
  new PerformanceObserver((list) => {
    for (const { value, hadRecentInput, sources } of list.getEntries()) {
      if (hadRecentInput) continue;
      jumps.sum += value;
      for (const { node, previousRect: from, currentRect: to } of sources)
        jumps.of.push((node?.className || node?.nodeName || 'something') +
          ' from ' + from.y + ' to ' + to.y);
    }
  }).observe({ type: 'layout-shift', buffered: true });`;

/**
 * Above this a page jumps noticeably while it loads: the bound of "good" in Web Vitals' cumulative
 * layout shift.
 */
const JUMPS_MAX = 0.1;

/**
 * The layout shifts of a page since it began to load, without those that a user caused; [] where
 * they are too small to be noticed.
 */
export async function jumps(page: Page): Promise<string[]> {
  const { sum, of } = Object(await page.evaluate('jumps'));
  return sum > JUMPS_MAX ? [`jumps by ${sum}: ${of.join('; ')}`] : [];
}
