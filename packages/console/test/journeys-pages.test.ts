/** Pages of the console and their refusals by role, in a real browser with a whole installation. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Service } from '../../server/test/harness-caller.ts';
import { barriers, CHROMIUM, jumps, logIn, NO_CHROMIUM, openWindow, type Look } from './browser.ts';
import {
  browser,
  enter,
  installation,
  openService,
  pagesOf,
  PATIENCE_MS,
  populate,
  setUp,
  tearDown,
} from './journeys-cloud.ts';
import { until, untilExpected } from '../../server/test/until.ts';

beforeAll(setUp);
afterAll(tearDown);

const PRINTED_LINK = /http:\S+\/login#[\w-]{43}(?=\s)/;

describe.skipIf(CHROMIUM === null)(`journeys in Chromium${NO_CHROMIUM}`, () => {
  test('the link of howdah up opens the console once; then a key is needed', async () => {
    // The installation is ready before it says so.
    await untilExpected('the link to log in is printed', () =>
      expect(installation.output.join('')).toMatch(PRINTED_LINK),
    );
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

  test('the page of usage says what each service takes, and why', async () => {
    const service = await installation.create({ name: 'weighed', addons: [] });
    const { page } = await enter();
    await page.goto('/project/usage');
    const row = page.getByRole('row').filter({ hasText: 'weighed' });
    await row.getByText(/never falls asleep \(howdah service set-auto-suspend/).waitFor();
    expect(await row.getByRole('cell').nth(2).textContent()).toMatch(/^[\d.]+ [kM]B$/);
    await row.getByRole('link', { name: 'weighed' }).click();
    await page.waitForURL(`**/services/${service.service_id}`);
  });

  test('the page of regions shows the findings of howdah doctor to the operator', async () => {
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

    // The key of another project gets the reason.
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
    await tenant.page.getByText('this needs an admin key of the operator project').waitFor();
    await tenant.context.close();
  });

  test('an action that the status refuses shows the message of the API', async () => {
    const service = await installation.create({ name: 'resting', addons: [] });
    const { page } = await enter();
    await openService(page, service);
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.getByText('Paused', { exact: true }).waitFor();
    const tabs = page.getByRole('navigation', { name: 'Service' });
    await tabs.getByRole('link', { name: 'Availability' }).click();
    const switchOver = page.getByRole('button', { name: 'Switch over' });
    // The reason is for those who come by key, too.
    await switchOver.focus();
    await page.keyboard.press('Shift+Tab');
    await page.keyboard.press('Tab');
    expect(await switchOver.evaluate('document.activeElement.textContent')).toBe('Switch over');
    const reason = page.getByRole('tooltip').filter({ hasText: 'cannot switchover' });
    const said = await reason.textContent();
    const refused = await installation.request(
      'POST',
      `/services/${service.service_id}/switchover`,
    );
    expect(refused.body).toEqual(expect.objectContaining({ message: said }));

    await tabs.getByRole('link', { name: 'Settings' }).click();
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

  test(
    'the page shows that the control plane is away for ten seconds, and continues without a reload',
    { tags: 'slow' },
    async () => {
      const { page } = await enter();
      await page.goto('/services');
      await page.getByRole('listitem').first().waitFor();
      await page.evaluate('globalThis.neverReloaded = true');
      await installation.stop('SIGKILL');
      const lost = page.getByText('The control plane does not answer.');
      await lost.waitFor();
      let failed = 0;
      page.on('requestfailed', (request) => {
        if (request.url().endsWith('/services')) failed += 1;
      });
      await until('the page has asked for its list three more times', () => failed >= 3);
      // The list that was loaded before stays on the page.
      expect(await page.getByRole('listitem').count()).toBeGreaterThan(0);
      await installation.up();
      await lost.waitFor({ state: 'detached' });
      await installation.create({ name: 'after the loss', addons: [] });
      await page.getByRole('listitem').filter({ hasText: 'after the loss' }).waitFor();
      expect(await page.evaluate('globalThis.neverReloaded')).toBe(true);
    },
  );

  test('a list of a thousand services draws only the visible rows, down to the last', async () => {
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
      await untilExpected('fewer than 80 items are listed', async () =>
        expect(await page.getByRole('listitem').count()).toBeLessThan(80),
      );
      expect(await page.getByRole('listitem').count()).toBeGreaterThan(8);
    }
    await page.getByText('number 999', { exact: true }).waitFor();
    await page.evaluate('scrollTo(0, 0)');
    await page.getByLabel('Search services').fill('number 777');
    await page.getByText('number 777', { exact: true }).waitFor();
    expect(await page.getByRole('listitem').count()).toBe(1);
  });

  test('the keyboard reaches the page past the menu, the tabs, and a dialog and back', async () => {
    const service = await installation.create({ name: 'by keyboard', addons: [] });
    const { page } = await enter();
    await openService(page, service, 'settings');
    // From the top of the page, whatever has the focus while it loads.
    await untilExpected('the first tab leads to the skip link', async () => {
      await page.evaluate('document.body.tabIndex = -1; document.body.focus()');
      await page.keyboard.press('Tab');
      expect(await page.evaluate('document.activeElement.textContent')).toBe('Skip to the page');
    });
    await page.keyboard.press('Enter');
    await untilExpected('the main part has the focus', async () =>
      expect(await page.evaluate('document.activeElement.id')).toBe('main'),
    );
    await page.getByRole('button', { name: 'Delete…' }).focus();
    await page.keyboard.press('Enter');
    await untilExpected('the input of the dialog has the focus', async () =>
      expect(
        await page.evaluate(
          "document.activeElement.closest('[role=dialog]') && document.activeElement.tagName",
        ),
      ).toBe('INPUT'),
    );
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await untilExpected('the button that opened the dialog has the focus', async () =>
      expect(await page.evaluate('document.activeElement.textContent')).toBe('Delete…'),
    );
  });

  test('a new key is shown once, and a login has its rights until it is revoked', async () => {
    const { page } = await enter();
    await page.goto('/project/keys');
    await page.getByLabel('Name', { exact: true }).fill('for reading');
    await page.getByText('viewer', { exact: true }).click();
    await page.getByRole('button', { name: 'Create the key' }).click();
    const dialog = page.getByRole('dialog', { name: 'The new key' });
    const key = String(await dialog.getByRole('region', { name: 'key' }).textContent());
    await dialog.getByRole('button', { name: 'I have saved it' }).click();
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
    // The session of the key has ended with it: the next request shows the login.
    await reader.page.goto('/services');
    await reader.page.waitForURL('**/login');
    await reader.context.close();
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

  test('an UNSTABLE service shows problem and remedy, on the list and its page', async () => {
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

  test('charts show time and value at the pointer, and where the keyboard is', async () => {
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
    await untilExpected('a point in the middle is shown', async () =>
      expect(await pointed.textContent()).toMatch(/^(2|3)\d$/),
    );
    await page.mouse.move(0, 0);
    await pointed.waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Earlier' }).focus();
    await chart.focus();
    await page.keyboard.press('End');
    await untilExpected('the last point is shown', async () =>
      expect(await pointed.textContent()).toBe('59'),
    );
    await page.keyboard.press('ArrowLeft');
    await untilExpected('the point before the last is shown', async () =>
      expect(await pointed.textContent()).toBe('58'),
    );
    expect(await chart.getAttribute('aria-valuetext')).toMatch(/\S, 58$/);
  });

  // Colours are of a theme, and places of a width: each of both once.
  const LOOKS: Look[] = [
    { theme: 'light', width: 1280 },
    { theme: 'dark', width: 390 },
  ];

  let populated: Promise<Service> | null = null;

  for (const look of LOOKS)
    test(
      `no page has an accessibility barrier, a layout shift or an overflow: ` +
        `${look.theme}, ${look.width} pixels`,
      { tags: 'slow' },
      async () => {
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
