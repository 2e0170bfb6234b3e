/** Work with services in the console, in a real browser with a whole installation. */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { connectTo } from '../../server/test/harness.ts';
import { createLayout, findServer, signal } from '../../server/test/probe.ts';
import { barriers, CHROMIUM, logIn, NO_CHROMIUM, openWindow } from './browser.ts';
import {
  browser,
  enter,
  installation,
  openService,
  PATIENCE_MS,
  setUp,
  tearDown,
} from './journeys-cloud.ts';
import { until, untilExpected } from '../../server/test/until.ts';

beforeAll(setUp);
afterAll(tearDown);

/** Waits for the next second of the clock: fields of the page may show no parts of it. */
const untilLaterSecond = (then: Date): Promise<Date> =>
  until('the clock shows a later second', () => {
    const now = new Date();
    return Math.floor(now.getTime() / 1000) > Math.floor(then.getTime() / 1000) && now;
  });

describe.skipIf(CHROMIUM === null)(`journeys in Chromium${NO_CHROMIUM}`, () => {
  test('a create shows its steps, and the copied URI connects', async () => {
    const { page } = await enter();
    await page.goto('/services');
    await page.getByRole('link', { name: 'Create service' }).first().click();
    const button = page.getByRole('button', { name: /^Create / });
    expect(await button.getAttribute('aria-disabled')).toBe('true');
    await page.getByRole('textbox', { name: 'Name' }).fill('from the browser');
    // The command beside the form contains the choice.
    await page.getByRole('radio', { name: /^1 CPU/ }).click();
    await untilExpected('the command has the name', async () =>
      expect(await page.getByRole('region', { name: 'command' }).textContent()).toContain(
        "--name 'from the browser'",
      ),
    );
    expect(await page.getByRole('region', { name: 'curl' }).textContent()).toContain(
      '"cpu_millis":"1000"',
    );
    await button.click();
    await page.getByRole('heading', { level: 1, name: 'from the browser' }).waitFor();
    await page.getByText('set password').waitFor();
    await page.getByText('Ready', { exact: true }).waitFor();

    await page.getByLabel('Client').selectOption('uri');
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

  test('a long operation shows the remaining time', async () => {
    const { page } = await enter();
    const service = await installation.create({ name: 'held up', addons: [] });
    const server = await findServer(
      createLayout(join(installation.home, 'data')).service(service.service_id),
    );
    const send = (name: 'SIGSTOP' | 'SIGCONT') => signal(server?.postmaster.pid ?? 0, name);
    // The API estimates the rest from past operations. The page gets a fixed value, for as long as
    // the server is held up.
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
    await untilExpected('no estimate is shown', async () =>
      expect(await page.getByText('about 42 s more').count()).toBe(0),
    );
  });

  test('the calls beside the create form make the same service, in a VPC', async () => {
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
    // Where VPCs are networks of their own, it has an address there; elsewhere those in the network
    // come to where it was.
    const { data: regions } = await installation.client.GET('/projects/{project_id}/regions', {
      params: { path: { project_id: installation.projectId } },
    });
    const place =
      regions?.[0]?.vpc.method === 'bridge' ? /^10\.61\.0\.\d+:\d+$/ : /^127\.0\.0\.1:\d+$/;
    await page.getByText(place).first().waitFor();

    // Said once more by hand.
    const words = command.replaceAll('\\\n', ' ').split(/\s+/);
    expect(words[0]).toBe('howdah');
    const other = words.slice(1).map((word) => (word === 'within' ? 'within-too' : word));
    const byCommand = await installation.cli(...other, '--no-wait');
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
    const made = (services ?? []).filter(({ name }) => name.startsWith('within'));
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

  test('a fork at a point in time has the data of that time', async () => {
    const parent = await installation.create({ name: 'parent', addons: [] });
    const client = await connectTo(installation, parent, parent.initial_password);
    await client.query('create table kept (n int)');
    await client.query('insert into kept values (1)');
    const between = await untilLaterSecond(new Date());
    const after = await untilLaterSecond(between);
    await client.query('insert into kept values (2)');
    await untilLaterSecond(after);
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
    await page.getByLabel('Storage in GB').fill('20');
    await page.getByRole('button', { name: /^Fork of / }).click();
    await page.getByRole('heading', { level: 1, name: 'then' }).waitFor();
    await page.getByText('Ready', { exact: true }).waitFor();
    await page.getByLabel('Client').selectOption('uri');
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
        resources: [{ id: expect.anything(), spec: expect.objectContaining({ storage_gb: 20 }) }],
      }),
    );
  });

  test('a switchover changes the shown topology', { tags: 'slow' }, async () => {
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
    await set.getByLabel('Size of each').selectOption('1 CPU, 4 GB');
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

  test(
    'storage is chosen at creation, shown with its use, and resized without a restart',
    { tags: 'slow' },
    async () => {
      const { page } = await enter();
      await page.goto('/create');
      await page.getByRole('textbox', { name: 'Name' }).fill('with storage');
      const storage = page.getByRole('textbox', { name: 'Storage in GB' });
      expect(await storage.inputValue()).toBe('10 GB');
      await storage.fill('20');
      await untilExpected('the command has the new size', async () =>
        expect(await page.getByRole('region', { name: 'command' }).textContent()).toContain(
          '--storage-gb 20',
        ),
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
      await untilExpected('the resize has succeeded', async () =>
        expect(
          (await installation.operations(made.service_id)).map(
            ({ kind, status }) => `${kind} ${status}`,
          ),
        ).toContain('resize succeeded'),
      );
      const [resized] = await installation.operations(made.service_id);
      expect(resized?.steps.map(({ name }) => name)).not.toContain('stop PostgreSQL');
    },
  );

  test('an exporter is made, attached, detached and deleted; its secret is not shown', async () => {
    const service = await installation.create({ name: 'exported', addons: [] });
    const { page } = await enter();
    await page.goto('/project/exporters');
    const form = page.getByRole('region', { name: 'New exporter' });
    await form.getByLabel('Type').selectOption('OTLP_METRICS');
    await form.getByLabel('Name').fill('collector');
    await form.getByLabel('Address').fill('https://receiver.invalid/v1/metrics');
    await form.getByLabel('Header', { exact: true }).fill('Authorization');
    await form.getByLabel('Value of the header').fill('Bearer of-secrets');
    await form.getByRole('button', { name: 'Create the exporter' }).click();
    const card = page.getByRole('region', { name: 'collector' });
    await card.getByText('with the header Authorization, nothing was accepted yet').waitFor();
    await card.getByLabel('Service', { exact: true }).selectOption(service.service_id);
    await card.getByRole('button', { name: 'Attach', exact: true }).click();
    await card.getByRole('link', { name: 'exported' }).waitFor();
    expect(await installation.get(service.service_id)).toHaveProperty('metric_exporter_id');
    expect(await page.content()).not.toContain('of-secrets');
    await card.getByRole('button', { name: 'Detach' }).click();
    await card.getByText('No service has this exporter.').waitFor();
    await card.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await card.waitFor({ state: 'detached' });
  });

  test('a destination of alerts is made, tested and deleted, and a rule is set', async () => {
    const { page } = await enter();
    await page.goto('/project/alerts');
    const form = page.getByRole('region', { name: 'New destination' });
    await form.getByLabel('Type').selectOption('slack');
    await form.getByLabel('Name').fill('on call');
    await form.getByLabel('URL').fill('https://receiver.invalid/of-secrets');
    await form.getByLabel('Quiet from').fill('22:00');
    await form.getByLabel(/^to \(/).fill('07:00');
    await form.getByRole('button', { name: 'Create the destination' }).click();
    const card = page.getByRole('region', { name: 'on call' });
    await card.getByText('Quiet from 22:00 to 07:00').waitFor();
    expect(await page.content()).not.toContain('of-secrets');
    await card.getByRole('button', { name: 'Send a test' }).click();
    await card.getByText('no answer').first().waitFor();
    const rules = page.getByRole('region', { name: 'Rules' });
    await rules.getByLabel('seconds of lag').fill('30');
    const row = rules.getByRole('row').filter({ hasText: 'lag' }).filter({ hasText: 'behind' });
    await row.getByRole('button', { name: 'Save' }).click();
    await untilExpected('the rule is set', async () =>
      expect((await installation.request('GET', '/alerts/rules')).body).toContainEqual(
        expect.objectContaining({ rule: 'lag', threshold: 30 }),
      ),
    );
    await card.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await card.waitFor({ state: 'detached' });
  });

  test('leases are listed, extended and returned; a key that may not sees the reason', async () => {
    const service = await installation.create({ name: 'copied', addons: [] });
    const { page } = await enter();
    await page.goto('/project/leases');
    await page.getByText('howdah lease take NAME -- npm test').waitFor();
    const params = { path: { project_id: installation.projectId } };
    const { data } = await installation.client.POST('/projects/{project_id}/leases', {
      params,
      body: { from: service.service_id, ttl_seconds: 600 },
    });
    const [lease] = data?.leases ?? [];
    if (lease === undefined) throw new Error('a lease was asked for');
    const row = page.getByRole('row').filter({ hasText: lease.id });
    await row.getByText(/^in (9|10) min$/).waitFor();
    await row.getByRole('link', { name: 'copied', exact: true }).waitFor();
    expect(await barriers(page)).toEqual([]);

    const { data: key } = await installation.client.POST('/projects/{project_id}/keys', {
      params,
      body: { name: 'of tests', role: 'developer', fork_only: true },
    });
    const other = await openWindow(browser, installation);
    other.page.setDefaultTimeout(PATIENCE_MS);
    await logIn(other.context, { ...installation, key: `${key?.public_key}:${key?.secret_key}` });
    await other.page.goto('/project/leases');
    const seen = other.page.getByRole('row').filter({ hasText: lease.id });
    for (const [name, why] of [
      ['Extend', 'this key is fork_only'],
      [`Return ${lease.id}`, 'it was taken by another key'],
    ] as const) {
      await seen.getByRole('button', { name, exact: true }).hover({ force: true });
      await other.page.getByRole('tooltip').filter({ hasText: why }).waitFor();
    }
    await other.context.close();

    await row.getByLabel(`Extend ${lease.id}`).selectOption('an hour');
    await row.getByRole('button', { name: 'Extend' }).click();
    await row.getByText(/^in (59|60) min$/).waitFor();
    await row.getByRole('button', { name: `Return ${lease.id}` }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Return' }).click();
    await page.getByRole('heading', { name: 'No leases' }).waitFor();
    expect((await installation.request('GET', '/leases')).body).toEqual([]);
  });

  test('an admin key purges a deleted service by its name; others see the reason', async () => {
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
});
