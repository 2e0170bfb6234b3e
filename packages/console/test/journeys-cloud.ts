/** An installation and a browser, and windows of it that are logged in. */
import { readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { expect, onTestFinished } from 'vitest';
import { install, type Installation } from '../../server/test/harness.ts';
import type { Service } from '../../server/test/harness-caller.ts';
import { CHROMIUM, launch, logIn, openWindow, type Look } from './browser.ts';

/** How long a page may take to show what is so; the machine may be busy. */
export const PATIENCE_MS = 300_000;

export let installation: Installation;

export let browser: Browser;

/** A window that is logged in; at its end nothing has gone wrong in it. */
export const enter = async (look?: Look) => {
  const window = await openWindow(browser, installation, look);
  window.page.setDefaultTimeout(PATIENCE_MS);
  await logIn(window.context, installation);
  onTestFinished(async () => {
    // A page polls until it is closed: an answer that a test changes may be on its way just then.
    await window.page.unrouteAll({ behavior: 'ignoreErrors' });
    await window.context.close();
    expect(window.problems).toEqual([]);
  });
  return window;
};

export const openService = async (page: Page, service: Service, tab = ''): Promise<void> => {
  await page.goto(`/services/${service.service_id}${tab === '' ? '' : `/${tab}`}`);
  await page.getByRole('heading', { level: 1, name: service.name }).waitFor();
};

/** A directory for a repository. */
export const offsite = (): string => join(installation.home, 'offsite');

/** A service with everything that pages show, and a project with some of all. */
export const populate = async (): Promise<Service> => {
  const service = await installation.create({
    name: 'to look at',
    addons: [],
    environment_tag: 'PROD',
  });
  const at = `/services/${service.service_id}`;
  // 422: this machine has no HAProxy, or no PgBouncer.
  const may = { status: expect.toBeOneOf([200, 201, 202, 204, 422]) };
  const ask = async (path: string, body?: object) =>
    expect(await installation.request('POST', path, body), path).toMatchObject(may);
  await ask(`${at}/enablePooler`);
  await ask(`${at}/replicaSets`, { name: 'readers', nodes: 2, cpu_millis: 250, memory_gbs: 1 });
  await installation.until(service.service_id, 'READY');
  await ask(`${at}/backups/verify`);
  await ask(`${at}/forkService`, {
    fork_strategy: 'NOW',
    name: 'a fork with a name that is much too long for the column it stands in',
  });
  await ask('/vpcs', { name: 'near', cidr: '10.62.0.0/24', region_code: 'local' });
  const { body: vpc } = await installation.request('POST', '/vpcs', {
    name: 'far',
    cidr: '10.63.0.0/24',
    region_code: 'local',
  });
  await ask(`/vpcs/${Object(vpc).id}/peerings`, {
    peer_account_id: 'nobody',
    peer_region_code: 'local',
    peer_vpc_id: '7',
  });
  await ask('/keys', { name: 'to look at', role: 'viewer', expires_at: '2099-01-01T00:00:00Z' });
  await ask('/alerts/destinations', {
    name: 'to look at',
    type: 'slack',
    config: { url: 'https://receiver.invalid/hook' },
  });
  await ask('/webhooks', { url: 'https://receiver.invalid/' });
  const { body: exporter } = await installation.request('POST', '/exporters', {
    name: 'to look at',
    type: 'PROMETHEUS_METRICS',
    region_code: 'local',
    config: { username: 'prometheus', password: 'not shown' },
  });
  await ask(`${at}/attachToExporter`, { exporter_id: Object(exporter).exporter_id });
  await mkdir(offsite());
  // 422: this machine has no pgBackRest.
  await installation.client
    .POST('/repositories', { body: { name: 'to look at', type: 'path', path: offsite() } })
    .catch((error: unknown) => expect(error).toMatchObject({ status: 422 }));
  await ask('/setLimits', { services: 1000 });
  const gone = await installation.create({ name: 'gone', addons: [] });
  await installation.request('DELETE', `/services/${gone.service_id}`);
  return service;
};

/** The address of every page that the router has: none is forgotten. */
export function pagesOf(serviceId: string): string[] {
  const source = readFileSync(new URL('../src/router.tsx', import.meta.url), 'utf8');
  const routes = [...source.matchAll(/getParentRoute: \(\) => (\w+),\s+path: '([^']+)'/g)];
  // All but the frame, which has no path of its own.
  expect(routes).toHaveLength([...source.matchAll(/createRoute\(\{/g)].length - 1);
  return routes.map(([, parent, path = '']) =>
    `${parent === 'service' ? '/services/$id' : ''}${path}`.replace('$id', serviceId),
  );
}

export async function setUp(): Promise<void> {
  if (CHROMIUM === null) return;
  [installation, browser] = await Promise.all([install(), launch()]);
}

export async function tearDown(): Promise<void> {
  await browser?.close();
  expect(await installation?.destroy()).toEqual([]);
}
