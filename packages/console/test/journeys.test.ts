import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { createLayout } from '../../server/src/engine/local/host/layout.ts';
import { signal } from '../../server/src/lib/processes.ts';
import { findServer } from '../../server/src/engine/local/postgres/server.ts';
import { connectTo, install, type Installation, type Service } from '../../server/test/harness.ts';
import {
  barriers,
  CHROMIUM,
  jumps,
  launch,
  logIn,
  NO_CHROMIUM,
  openWindow,
  type Look,
} from './browser.ts';

const PRINTED_LINK = /http:\S+\/login#[\w-]{43}(?=\s)/;

/** How long a page may take to show what is so; the machine may be busy. */
const PATIENCE_MS = 60_000;
const eventually = <T>(look: () => T) => expect.poll(look, { timeout: PATIENCE_MS });

describe.skipIf(CHROMIUM === null)(`journeys in Chromium${NO_CHROMIUM}`, () => {
  let installation: Installation;
  let browser: Browser;

  beforeAll(async () => {
    [installation, browser] = await Promise.all([install(), launch()]);
  });
  afterAll(async () => {
    await browser?.close();
    expect(await installation?.destroy()).toEqual([]);
  });

  /** A window that is logged in; at its end nothing has gone wrong in it. */
  const enter = async (look?: Look) => {
    const window = await openWindow(browser, installation, look);
    window.page.setDefaultTimeout(PATIENCE_MS);
    await logIn(window.context, installation);
    onTestFinished(async () => {
      await window.context.close();
      expect(window.problems).toEqual([]);
    });
    return window;
  };

  const openService = async (page: Page, service: Service, tab = ''): Promise<void> => {
    await page.goto(`/services/${service.service_id}${tab === '' ? '' : `/${tab}`}`);
    await page.getByRole('heading', { level: 1, name: service.name }).waitFor();
  };

  test('the first login: the link of howdah up opens the console once; after that a key does', async () => {
    // It is ready before it says so.
    await eventually(() => installation.output.join('')).toMatch(PRINTED_LINK);
    const link = PRINTED_LINK.exec(installation.output.join(''))?.[0] ?? '';
    const { context, page, problems } = await openWindow(browser, installation);
    page.setDefaultTimeout(PATIENCE_MS);
    await page.goto(link);
    await page.getByRole('heading', { name: 'Your first database is a second away' }).waitFor();
    expect(page.url()).toMatch(/\/services$/);
    const cookies = await context.cookies();
    expect(cookies).toEqual([
      expect.objectContaining({ httpOnly: true, sameSite: 'Strict', path: '/' }),
    ]);
    expect(await page.evaluate('document.cookie')).toBe('');

    await page.getByRole('button', { name: 'Log out' }).click();
    await page.waitForURL('**/login');
    expect(await context.cookies()).toEqual([]);
    // Another page first: the same address with another # would not be loaded again.
    await page.goto('about:blank');
    await page.goto(link);
    const refused = page.getByRole('alert');
    await refused.waitFor();
    expect(await refused.textContent()).toMatch(/link was used already.*request [0-9a-f-]{36}/s);

    await page.getByLabel('Key', { exact: true }).fill(installation.key);
    await page.keyboard.press('Enter');
    await page.waitForURL('**/services');
    await context.close();
    expect(problems.filter((problem) => !problem.includes('about:blank'))).toEqual([]);
  });

  test('create: the steps are seen, and the copied URI connects', async () => {
    const { page } = await enter();
    await page.goto('/services');
    await page.getByRole('link', { name: 'Create service' }).first().click();
    const button = page.getByRole('button', { name: /^Create / });
    expect(await button.getAttribute('aria-disabled')).toBe('true');
    await page.getByRole('textbox', { name: 'Name' }).fill('from the browser');
    // What is clicked stands in the command beside it.
    await page.getByRole('radio', { name: /^1 CPU/ }).click();
    await eventually(() => page.getByRole('region', { name: 'command' }).textContent()).toContain(
      "--name 'from the browser'",
    );
    expect(await page.getByRole('region', { name: 'curl' }).textContent()).toContain(
      '"cpu_millis":"1000"',
    );
    await button.click();
    await page.getByRole('heading', { level: 1, name: 'from the browser' }).waitFor();
    await page.getByText('set password').waitFor();
    await page.getByText('Ready', { exact: true }).waitFor();

    await page.getByText('URI', { exact: true }).click();
    await page.getByRole('button', { name: 'Copy URI connection' }).click();
    const copied = String(await page.evaluate('navigator.clipboard.readText()'));
    const { hostname, port, password, username, pathname } = new URL(copied);
    expect([username, pathname]).toEqual(['tsdbadmin', '/tsdb']);
    const client = await connectTo(
      installation,
      { endpoint: { host: hostname, port: Number(port) } },
      decodeURIComponent(password),
    );
    expect((await client.query('show shared_buffers')).rows).toEqual([{ shared_buffers: '1GB' }]);
    await client.end();
  });

  test('an operation that takes its time says how long it will still take', async () => {
    const { page } = await enter();
    const service = await installation.create({ name: 'held up', addons: [] });
    const server = await findServer(
      createLayout(join(installation.home, 'data')).service(service.service_id),
    );
    const send = (name: 'SIGSTOP' | 'SIGCONT') => signal(server?.postmaster.pid ?? 0, name);
    // What past ones say of it is the API's; here what it says is shown, for as long as the server is held up.
    await page.route(/\/operations\/[^/?]+$/, async (route) => {
      const response = await route.fetch();
      await route.fulfill({
        response,
        json: { ...(await response.json()), remaining_seconds: 42 },
      });
    });
    send('SIGSTOP');
    onTestFinished(() => send('SIGCONT'));
    await installation.request('POST', `/services/${service.service_id}/stop`);
    await openService(page, service);
    await page.getByText('about 42 s more').waitFor();
    send('SIGCONT');
    await page.getByText('Paused', { exact: true }).waitFor();
    await eventually(() => page.getByText('about 42 s more').count()).toBe(0);
  });

  test('create in a VPC: the calls beside the form make the same service', async () => {
    const { body: vpc } = await installation.request('POST', '/vpcs', {
      name: 'inner',
      cidr: '10.61.0.0/24',
      region_code: 'local',
    });
    const vpcId = String(Object(vpc).id);
    const { page } = await enter();
    await page.goto('/create');
    await page.getByRole('textbox', { name: 'Name' }).fill('within');
    await page
      .getByRole('combobox', { name: 'VPC' })
      .selectOption({ label: 'inner (10.61.0.0/24)' });
    await page.getByText('PROD', { exact: true }).click();
    const command = String(await page.getByRole('region', { name: 'command' }).textContent());
    const curl = String(await page.getByRole('region', { name: 'curl' }).textContent());
    await page.getByRole('button', { name: 'Create within' }).click();
    await page.getByRole('heading', { level: 1, name: 'within' }).waitFor();
    await page.getByText('Ready', { exact: true }).waitFor();
    // Where VPCs are networks of their own, it has an address there; elsewhere those in the network come to where it was.
    const { data: regions } = await installation.client.GET('/projects/{project_id}/regions', {
      params: { path: { project_id: installation.projectId } },
    });
    const place =
      regions?.[0]?.vpc.method === 'bridge' ? /^10\.61\.0\.\d+:\d+$/ : /^127\.0\.0\.1:\d+$/;
    await page.getByText(place).first().waitFor();

    // Said once more by hand.
    const words = command.replaceAll('\\\n', ' ').split(/\s+/);
    expect(words[0]).toBe('howdah');
    const byCommand = await installation.cli(...words.slice(1), '--no-wait');
    expect(byCommand, byCommand.stderr).toMatchObject({ code: 0 });
    const byCurl = await installation.request(
      'POST',
      '/services',
      JSON.parse(/-d '([^']+)'/.exec(curl)?.[1] ?? ''),
    );
    expect(byCurl.status).toBe(202);
    const { data: services } = await installation.client.GET('/projects/{project_id}/services', {
      params: { path: { project_id: installation.projectId } },
    });
    const made = (services ?? []).filter(({ name }) => name === 'within');
    await Promise.all(made.map(({ service_id: id }) => installation.until(id, 'READY')));
    const same = {
      service_type: made[0]?.service_type,
      metadata: { environment: 'PROD' },
      vpc_endpoint: { vpc_id: vpcId },
    };
    expect(made).toEqual(
      [1, 2, 3].map(() =>
        expect.objectContaining({
          ...same,
          vpc_endpoint: expect.objectContaining(same.vpc_endpoint),
        }),
      ),
    );
    expect(new Set(made.map(({ resources }) => JSON.stringify(resources[0]?.spec))).size).toBe(1);
  });

  test('fork at a point in time: the fork has what was there then', async () => {
    const parent = await installation.create({ name: 'parent', addons: [] });
    const client = await connectTo(installation, parent, parent.initial_password);
    await client.query('create table kept (n int)');
    await client.query('insert into kept values (1)');
    await sleep(1200);
    const between = new Date();
    await sleep(1200);
    await client.query('insert into kept values (2)');
    await sleep(1200);
    await client.query('select txid_current()');
    await client.end();

    const { page } = await enter();
    await openService(page, parent, 'backups');
    await page.getByRole('radio', { name: /As it was at a point in time/ }).click();
    const moment = page.getByLabel('The moment, in your time zone');
    await moment.fill(
      new Date(between.getTime() - between.getTimezoneOffset() * 60_000).toISOString().slice(0, -1),
    );
    await page.getByLabel('Name of the fork').fill('then');
    await page.getByLabel('Storage in GB').fill('60');
    await page.getByRole('button', { name: /^Fork of / }).click();
    await page.getByRole('heading', { level: 1, name: 'then' }).waitFor();
    await page.getByText('Ready', { exact: true }).waitFor();
    await page.getByText('URI', { exact: true }).click();
    const shown = new URL(
      String(await page.getByRole('region', { name: 'URI connection' }).textContent()),
    );
    const fork = await connectTo(
      installation,
      { endpoint: { host: shown.hostname, port: Number(shown.port) } },
      decodeURIComponent(shown.password),
    );
    expect((await fork.query('select n from kept')).rows).toEqual([{ n: 1 }]);
    await fork.end();

    await page.goto('/services');
    const row = page.getByRole('listitem').filter({ hasText: 'then' });
    expect(await row.textContent()).toContain('fork of parent');
    const { body: services } = await installation.request('GET', '/services');
    expect(services).toContainEqual(
      expect.objectContaining({
        name: 'then',
        resources: [{ id: expect.anything(), spec: expect.objectContaining({ storage_gb: 60 }) }],
      }),
    );
  });

  test('switch over: the picture changes', async () => {
    const { data: regions } = await installation.client.GET('/projects/{project_id}/regions', {
      params: { path: { project_id: installation.projectId } },
    });
    const { page } = await enter();
    if (regions?.[0]?.high_availability.available !== true) {
      // Where no replicas can be had, the page says why and what adds them.
      const alone = await installation.create({ name: 'alone', addons: [] });
      await openService(page, alone, 'availability');
      expect(
        await page.getByRole('button', { name: 'Switch over' }).getAttribute('aria-disabled'),
      ).toBe('true');
      return;
    }
    const service = await installation.create({ name: 'paired', addons: [], replica_count: 1 });
    await openService(page, service, 'availability');
    await page.getByRole('group', { name: 'Node 0: primary' }).waitFor();
    const standby = page.getByRole('group', { name: 'Node 1: standby' });
    await standby.getByText('streaming').waitFor();
    await page.getByRole('button', { name: 'Switch over' }).click();
    await page.getByRole('group', { name: 'Node 1: primary' }).waitFor();
    await page.getByRole('group', { name: 'Node 0: standby' }).getByText('streaming').waitFor();
    await page.getByText('Ready', { exact: true }).waitFor();

    await page.getByRole('button', { name: 'Drill…' }).click();
    await page.getByRole('button', { name: 'Start the drill' }).click();
    await page
      .getByText(/^The last drill, .*: write gap \d+ ms; 0 of \d+ acknowledged probes lost$/)
      .waitFor();
    await page.getByRole('group', { name: 'Node 0: primary' }).waitFor();

    // A set is drawn beside the standbys, and gets another size.
    await page.getByLabel('Name of a new set').fill('readers');
    await page.getByLabel('Nodes', { exact: true }).fill('2');
    await page.getByRole('button', { name: 'Add the set' }).click();
    const drawn = page.getByRole('group', { name: 'Read replica set readers' });
    for (const node of [1, 2])
      await drawn
        .getByRole('listitem')
        .filter({ hasText: new RegExp(`^node ${node} asynchronous · no lag`) })
        .waitFor();
    const set = page.getByRole('group', { name: 'Set readers' });
    await set.getByText('active', { exact: true }).waitFor();
    await set.getByRole('combobox').selectOption('1 CPU, 4 GB');
    await set.getByRole('button', { name: 'Resize' }).click();
    await set.getByText('resizing', { exact: true }).waitFor();
    await set.getByText('active', { exact: true }).waitFor();
    const { body } = await installation.request(
      'GET',
      `/services/${service.service_id}/replicaSets`,
    );
    expect(body).toEqual([
      expect.objectContaining({ name: 'readers', cpu_millis: 1000, memory_gbs: 4 }),
    ]);
  });

  test('regions: what howdah doctor finds, to the operator', async () => {
    const { page } = await enter();
    await page.goto('/project/regions');
    const machine = page.getByRole('region', { name: 'This machine' });
    await machine.getByRole('listitem').first().waitFor();
    const shown = await machine.getByRole('listitem').locator('strong').allTextContents();
    const said = await installation.cli('doctor');
    const found = said.stdout
      .split('\n')
      .flatMap((line) => /^[✓•✗] ([^:]+):/.exec(line)?.[1] ?? []);
    expect(found.length).toBeGreaterThan(8);
    expect(shown).toEqual(found);

    // Another project's key is told why not.
    const { data: other } = await installation.client.POST('/projects', {
      body: { name: 'other' },
    });
    const { data: key } = await installation.client.POST('/projects/{project_id}/keys', {
      params: { path: { project_id: other?.id ?? '' } },
      body: { name: 'tenant', role: 'admin' },
    });
    const tenant = await openWindow(browser, installation);
    tenant.page.setDefaultTimeout(PATIENCE_MS);
    await logIn(tenant.context, { ...installation, key: `${key?.public_key}:${key?.secret_key}` });
    await tenant.page.goto('/project/regions');
    await tenant.page.getByText('it takes an admin key of the operator project').waitFor();
    await tenant.context.close();
  });

  test('an action that the status refuses says why, in the words of the API', async () => {
    const service = await installation.create({ name: 'resting', addons: [] });
    const { page } = await enter();
    await openService(page, service);
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.getByText('Paused', { exact: true }).waitFor();
    await page
      .getByRole('navigation', { name: 'Service' })
      .getByRole('link', { name: 'Settings' })
      .click();
    await page.getByLabel('New password', { exact: true }).fill('long enough');
    const set = page.getByRole('button', { name: 'Set', exact: true });
    // The reason is for those who come by key, too.
    await page.keyboard.press('Tab');
    expect(await set.evaluate('document.activeElement.textContent')).toBe('Set');
    const said = await page.getByRole('tooltip').first().textContent();
    const refused = await installation.request(
      'POST',
      `/services/${service.service_id}/updatePassword`,
      { password: 'long enough' },
    );
    expect(refused.body).toEqual(expect.objectContaining({ message: said }));

    await page.getByRole('button', { name: 'Delete…' }).click();
    await page.getByRole('dialog').getByRole('textbox').fill('resting');
    await page.getByRole('button', { name: 'Delete the service' }).click();
    await page.waitForURL('**/services');
    await page.getByRole('link', { name: 'Deleted' }).click();
    await page
      .getByRole('row')
      .filter({ hasText: 'resting' })
      .getByRole('button', { name: 'Restore' })
      .click();
    await page.getByRole('heading', { level: 1, name: 'resting' }).waitFor();
    await page.getByText('Paused', { exact: true }).waitFor();
  });

  test('storage is chosen at creation and resized without a restart, beside what is used', async () => {
    const { page } = await enter();
    await page.goto('/create');
    await page.getByRole('textbox', { name: 'Name' }).fill('with storage');
    const storage = page.getByRole('textbox', { name: 'Storage in GB' });
    expect(await storage.inputValue()).toBe('10 GB');
    await storage.fill('20');
    await eventually(() => page.getByRole('region', { name: 'command' }).textContent()).toContain(
      '--storage-gb 20',
    );
    await page.getByRole('button', { name: 'Create with storage' }).click();
    await page.getByRole('heading', { level: 1, name: 'with storage' }).waitFor();
    await page.getByText('Ready', { exact: true }).waitFor();
    await page
      .getByText(/of 20 GB/)
      .first()
      .waitFor();

    await page
      .getByRole('navigation', { name: 'Service' })
      .getByRole('link', { name: 'Settings' })
      .click();
    const size = page.getByRole('region', { name: 'Size' });
    await size.getByText(/\d+ MB of 20 GB in use/).waitFor();
    const resize = size.getByRole('button', { name: 'Resize' });
    expect(await resize.getAttribute('aria-disabled')).toBe('true');
    await size.getByText('The server restarts').waitFor();
    await size.getByRole('textbox', { name: 'New storage in GB' }).fill('30');
    await size.getByText('without a restart').waitFor();
    await resize.click();
    await size.getByText(/of 30 GB in use/).waitFor();
    const services = (await installation.request('GET', '/services')).body;
    const made = Array.isArray(services)
      ? services.find(({ name }) => name === 'with storage')
      : undefined;
    await eventually(async () =>
      (await installation.operations(made.service_id)).map(
        ({ kind, status }) => `${kind} ${status}`,
      ),
    ).toContain('resize succeeded');
    const [resized] = await installation.operations(made.service_id);
    expect(resized?.steps.map(({ name }) => name)).not.toContain('stop PostgreSQL');
  });

  test('a deleted service is purged by an admin key, once its name is typed; other keys are told why not', async () => {
    const service = await installation.create({ name: 'not wanted', addons: [] });
    await installation.request('DELETE', `/services/${service.service_id}`);
    const { page } = await enter();
    await page.goto('/project/deleted');
    const row = page.getByRole('row').filter({ hasText: 'not wanted' });
    await row.getByText(/^in (23|24) h$/).waitFor();

    const { data: key } = await installation.client.POST('/projects/{project_id}/keys', {
      params: { path: { project_id: installation.projectId } },
      body: { name: 'forks', role: 'developer', fork_only: true },
    });
    const other = await openWindow(browser, installation);
    other.page.setDefaultTimeout(PATIENCE_MS);
    await logIn(other.context, { ...installation, key: `${key?.public_key}:${key?.secret_key}` });
    await other.page.goto('/project/deleted');
    const seen = other.page.getByRole('row').filter({ hasText: 'not wanted' });
    for (const [name, why] of [
      ['Purge…', 'admin'],
      ['Restore', 'fork_only'],
    ] as const) {
      await seen.getByRole('button', { name }).hover({ force: true });
      await other.page.getByRole('tooltip').filter({ hasText: why }).waitFor();
      expect(await seen.getByRole('button', { name }).getAttribute('aria-disabled')).toBe('true');
    }
    await other.page.goto('/create');
    await other.page.getByText(/^You cannot create services: this key is fork_only/).waitFor();
    expect(await other.page.getByRole('textbox').count()).toBe(0);
    await other.context.close();

    await row.getByRole('button', { name: 'Purge…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Purge not wanted' });
    const remove = dialog.getByRole('button', { name: 'Purge the service' });
    await dialog.getByRole('textbox').fill('not wante');
    expect(await remove.getAttribute('aria-disabled')).toBe('true');
    await dialog.getByRole('textbox').fill('not wanted');
    await remove.click();
    await row.waitFor({ state: 'detached' });
    expect(
      (await installation.request('POST', `/services/${service.service_id}/restore`)).status,
    ).toBe(404);
  });

  test('the control plane is lost for ten seconds: the page says so, and goes on without a reload', async () => {
    const { page } = await enter();
    await page.goto('/services');
    await page.getByRole('listitem').first().waitFor();
    await page.evaluate('globalThis.neverReloaded = true');
    await installation.stop('SIGKILL');
    const lost = page.getByText('The control plane does not answer.');
    await lost.waitFor();
    await sleep(10_000);
    // What was known stays on the page.
    expect(await page.getByRole('listitem').count()).toBeGreaterThan(0);
    await installation.up();
    await lost.waitFor({ state: 'detached' });
    await installation.create({ name: 'after the loss', addons: [] });
    await page.getByRole('listitem').filter({ hasText: 'after the loss' }).waitFor();
    expect(await page.evaluate('globalThis.neverReloaded')).toBe(true);
  });

  test('a thousand services: as many rows are drawn as a window shows, and the last is reached', async () => {
    const pattern = (await installation.request('GET', '/services')).body;
    if (!Array.isArray(pattern)) throw new Error('there are no services');
    const many = Array.from({ length: 1000 }, (_, n) => ({
      ...pattern[0],
      service_id: `x${String(n).padStart(9, '0')}`,
      name: `number ${n}`,
    }));
    const { page } = await enter();
    await page.route('**/services', async (route) =>
      route.request().resourceType() === 'fetch' ? route.fulfill({ json: many }) : route.continue(),
    );
    await page.goto('/services');
    await page.getByText('number 0', { exact: true }).waitFor();
    for (let part = 0; part <= 10; part++) {
      await page.evaluate(`scrollTo(0, document.body.scrollHeight * ${part / 10})`);
      await eventually(() => page.getByRole('listitem').count()).toBeLessThan(80);
      expect(await page.getByRole('listitem').count()).toBeGreaterThan(8);
    }
    await page.getByText('number 999', { exact: true }).waitFor();
    await page.evaluate('scrollTo(0, 0)');
    await page.getByLabel('Search services').fill('number 777');
    await page.getByText('number 777', { exact: true }).waitFor();
    expect(await page.getByRole('listitem').count()).toBe(1);
  });

  test('the keyboard reaches everything: past the menu to the page, over the tabs, into a dialog and out', async () => {
    const service = await installation.create({ name: 'by keyboard', addons: [] });
    const { page } = await enter();
    await openService(page, service, 'settings');
    // From the top of the page, whatever has the focus while it loads.
    await eventually(async () => {
      await page.evaluate('document.body.tabIndex = -1; document.body.focus()');
      await page.keyboard.press('Tab');
      return page.evaluate('document.activeElement.textContent');
    }).toBe('Skip to the page');
    await page.keyboard.press('Enter');
    await eventually(() => page.evaluate('document.activeElement.id')).toBe('main');
    await page.getByRole('button', { name: 'Delete…' }).focus();
    await page.keyboard.press('Enter');
    await eventually(() =>
      page.evaluate(
        "document.activeElement.closest('[role=dialog]') && document.activeElement.tagName",
      ),
    ).toBe('INPUT');
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await eventually(() => page.evaluate('document.activeElement.textContent')).toBe('Delete…');
  });

  test('a key is made and shown once; who logs in with it may what it may, until it is revoked', async () => {
    const { page } = await enter();
    await page.goto('/project/keys');
    await page.getByLabel('Name', { exact: true }).fill('for reading');
    await page.getByText('viewer', { exact: true }).click();
    await page.getByRole('button', { name: 'Create the key' }).click();
    const dialog = page.getByRole('dialog', { name: 'The new key' });
    const key = String(await dialog.getByRole('region', { name: 'key' }).textContent());
    await dialog.getByRole('button', { name: 'I have kept it' }).click();
    await dialog.waitFor({ state: 'detached' });
    const row = page.getByRole('row').filter({ hasText: 'for reading' });
    await row.waitFor();
    expect(await page.content()).not.toContain(key.split(':')[1]);

    const reader = await openWindow(browser, installation);
    reader.page.setDefaultTimeout(PATIENCE_MS);
    await logIn(reader.context, { ...installation, key });
    for (const path of ['/create', '/project/keys', '/project/vpcs', '/project/webhooks']) {
      await reader.page.goto(path);
      await reader.page.getByText(/^You cannot .* a key with the role viewer may not/).waitFor();
      expect([path, await reader.page.getByRole('textbox').count()]).toEqual([path, 0]);
    }
    await reader.page.goto('/services');
    const create = reader.page.getByRole('button', { name: 'Create service' });
    await create.hover({ force: true });
    expect(await reader.page.getByRole('tooltip').first().textContent()).toContain('viewer');

    await row.getByRole('button', { name: 'Revoke' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
    await row.getByText('revoked').waitFor();
    // Its session has ended with it: the next request shows the login.
    await reader.page.goto('/services');
    await reader.page.waitForURL('**/login');
    await reader.context.close();
  });

  test('PROD is stopped by its name only, and not by a developer', async () => {
    const service = await installation.create({
      name: 'in production',
      addons: [],
      environment_tag: 'PROD',
    });
    const { data: key } = await installation.client.POST('/projects/{project_id}/keys', {
      params: { path: { project_id: installation.projectId } },
      body: { name: 'developer', role: 'developer' },
    });
    const other = await openWindow(browser, installation);
    other.page.setDefaultTimeout(PATIENCE_MS);
    await logIn(other.context, { ...installation, key: `${key?.public_key}:${key?.secret_key}` });
    await openService(other.page, service);
    const refused = other.page.getByRole('button', { name: 'Stop…' });
    expect(await refused.getAttribute('aria-disabled')).toBe('true');
    await refused.hover({ force: true });
    await other.page.getByRole('tooltip').filter({ hasText: 'PROD' }).waitFor();
    await other.context.close();

    const { page } = await enter();
    await openService(page, service);
    await page.getByRole('button', { name: 'Stop…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Stop in production' });
    const stop = dialog.getByRole('button', { name: 'Stop the service' });
    await dialog.getByRole('textbox').fill('in productio');
    expect(await stop.getAttribute('aria-disabled')).toBe('true');
    expect((await installation.operations(service.service_id)).map(({ kind }) => kind)).toEqual([
      'create',
    ]);
    await dialog.getByRole('textbox').fill('in production');
    await stop.click();
    await page.getByText('Paused', { exact: true }).waitFor();
  });

  test('an unknown address shows a page with a way back', async () => {
    const { page } = await enter();
    for (const path of ['/nowhere', '/project/nowhere']) {
      await page.goto(path);
      await page.getByRole('heading', { name: 'Page not found' }).waitFor();
      await page.getByRole('link', { name: 'All services' }).click();
      await page.getByRole('heading', { name: 'Services' }).waitFor();
    }
  });

  test('an UNSTABLE service shows its problem once and its remedy, on the list and on its page', async () => {
    const service = await installation.create({ name: 'in trouble', addons: [] });
    const { page } = await enter();
    const error = 'start PostgreSQL: no room on the disk';
    const path = `/services/${service.service_id}`;
    await page.route(/\/services(\/\w+)?(\?.*)?$/, async (route) => {
      if (route.request().resourceType() !== 'fetch') return route.continue();
      const response = await route.fetch();
      const body: unknown = await response.json();
      const change = (one: object) =>
        Reflect.get(one, 'service_id') === service.service_id
          ? { ...one, status: 'UNSTABLE' }
          : one;
      const json = Array.isArray(body)
        ? body.map((one) => change(Object(one)))
        : change(Object(body));
      return route.fulfill({ response, json });
    });
    await page.route(/\/operations(\?.*)?$/, async (route) => {
      if (route.request().resourceType() !== 'fetch') return route.continue();
      const started = new Date().toISOString();
      const step = { name: 'start PostgreSQL', started, finished: null };
      const operation = {
        id: 'op00000000',
        kind: 'repair',
        service_id: service.service_id,
        status: 'running',
        requested_by: 'howdah',
        created: started,
        finished: null,
        steps: [{ ...step, detail: 'no room on the disk' }],
        error,
      };
      return route.fulfill({ json: [operation] });
    });
    for (const at of ['/services', path, `${path}/operations`]) {
      await page.goto(at);
      await page.getByText('tries again').waitFor();
      expect([at, await page.getByText('no room on the disk').count()]).toEqual([at, 1]);
    }
  });

  test('charts show time and value at the pointer, and at the point that the keyboard chose', async () => {
    const service = await installation.create({ name: 'measured', addons: [] });
    const { page } = await enter();
    await page.route(/\/metrics\/series$/, async (route) => {
      const { from, bucket_seconds: seconds } = route.request().postDataJSON();
      const data = Array.from({ length: 60 }, (_, n) => ({
        time: new Date(Date.parse(from) + n * seconds * 1000).toISOString(),
        value: n,
      }));
      return route.fulfill({ json: [{ labels: { node: '0' }, data }] });
    });
    await openService(page, service, 'metrics');
    const chart = page.getByRole('slider', { name: 'Connections over time' });
    const canvas = chart.locator('.u-over');
    await canvas.hover();
    const pointed = chart.locator('b');
    await eventually(() => pointed.textContent()).toMatch(/^(2|3)\d$/);
    await page.mouse.move(0, 0);
    await pointed.waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Earlier' }).focus();
    await chart.focus();
    await page.keyboard.press('End');
    await eventually(() => pointed.textContent()).toBe('59');
    await page.keyboard.press('ArrowLeft');
    await eventually(() => pointed.textContent()).toBe('58');
    expect(await chart.getAttribute('aria-valuetext')).toMatch(/\S, 58$/);
  });

  // Colours are of a theme, and places of a width: each of both once.
  const LOOKS: Look[] = [
    { theme: 'light', width: 1280 },
    { theme: 'dark', width: 390 },
  ];

  /** A service with everything that pages show, and a project with some of all. */
  const populate = async (): Promise<Service> => {
    const service = await installation.create({
      name: 'to look at',
      addons: [],
      environment_tag: 'PROD',
    });
    const at = `/services/${service.service_id}`;
    const may = { status: expect.toBeOneOf([200, 201, 202, 204, 422]) }; // 422: this machine has no HAProxy, or no PgBouncer
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
    await ask('/webhooks', { url: 'https://receiver.invalid/' });
    await ask('/setLimits', { services: 1000 });
    const gone = await installation.create({ name: 'gone', addons: [] });
    await installation.request('DELETE', `/services/${gone.service_id}`);
    return service;
  };
  let populated: Promise<Service> | null = null;

  test.for(LOOKS)(
    'no page has a barrier, jumps or runs over its edge: $theme, $width pixels',
    async (look) => {
      const service = await (populated ??= populate());
      const bare = await installation.create({ name: 'bare', addons: [] });
      const { page } = await enter(look);
      const pages = pagesOf(service.service_id);
      const found: Record<string, unknown> = {};
      for (const path of [
        ...pages,
        ...pagesOf(bare.service_id).filter((one) => one.includes(bare.service_id)),
        '/services/nonesuch00',
      ]) {
        await page.goto(path);
        await page.getByRole('heading').first().waitFor();
        await page.locator('[aria-busy=true]').first().waitFor({ state: 'detached' });
        const over = await page.evaluate('document.documentElement.scrollWidth - innerWidth');
        const problems = [
          ...(await barriers(page)),
          ...(await jumps(page)),
          ...(Number(over) > 0 ? [`${String(over)} pixels too wide`] : []),
          ...((await page.getByText('Page not found').count()) > 0 ? ['is no page'] : []),
        ];
        if (problems.length > 0) found[path] = problems;
      }
      expect(found).toEqual({});
    },
  );
});

/** The address of every page that the router has: none is forgotten. */
function pagesOf(serviceId: string): string[] {
  const source = readFileSync(new URL('../src/router.tsx', import.meta.url), 'utf8');
  const routes = [...source.matchAll(/getParentRoute: \(\) => (\w+),\s+path: '([^']+)'/g)];
  // All but the frame, which has no path of its own.
  expect(routes).toHaveLength([...source.matchAll(/createRoute\(\{/g)].length - 1);
  return routes.map(([, parent, path = '']) =>
    `${parent === 'service' ? '/services/$id' : ''}${path}`.replace('$id', serviceId),
  );
}
