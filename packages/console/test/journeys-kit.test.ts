/** The page that creates a service from a recovery kit, as a person uses it. */
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CHROMIUM, NO_CHROMIUM, barriers, logIn, openWindow } from './browser.ts';
import { browser, enter, installation, PATIENCE_MS, setUp, tearDown } from './journeys-cloud.ts';
import { untilExpected } from '../../server/test/until.ts';

const KIT = {
  howdah: 'recovery kit',
  installation_id: 'aaaaaaaaaa',
  repository: { name: 'offsite', type: 'path', path: '/mnt/disk2/howdah' },
  passphrase: 'of production',
};
const BACKED_UP = 'comes back as of 2026-01-31T12:00:00Z and with the WAL after it: 12 MB';
const LISTED = [
  { service_id: 'orders0000', name: 'orders', can_come_back: true, state: BACKED_UP },
  { service_id: 'empty00000', name: 'empty', can_come_back: false, state: 'has no backup yet' },
];
const REFUSAL = 'target_time: found "never"; it is a date-time with an offset that is over';

/** Answers for a repository that no machine of a test has. @returns the bodies of the calls */
async function answerFor(page: Page, made: object): Promise<object[]> {
  const asked: object[] = [];
  await page.route('**/services/fromKit*', async (route) => {
    const body: object = route.request().postDataJSON();
    if (!route.request().url().includes('dry_run=true')) {
      asked.push(body);
      return route.fulfill({ status: 202, json: made });
    }
    if (Reflect.get(body, 'target_time') === 'never')
      return route.fulfill({
        status: 400,
        json: { code: 'INVALID_REQUEST', message: REFUSAL, request_id: 'none' },
      });
    const answer = { dry_run: true, response_status: 202, services: LISTED, operation: null };
    return route.fulfill({ headers: { 'Dry-Run': 'true' }, json: answer });
  });
  return asked;
}

const overflow = (page: Page) =>
  page.evaluate('Math.max(0, document.documentElement.scrollWidth - innerWidth)');

describe.skipIf(CHROMIUM === null)(`a recovery kit in the console${NO_CHROMIUM}`, () => {
  beforeAll(setUp);
  afterAll(tearDown);

  for (const look of [
    { theme: 'light', width: 1280 },
    { theme: 'dark', width: 390 },
  ] as const)
    test(`a kit is pasted and a service chosen by keyboard, ${look.width} px wide`, async () => {
      const service = await installation.create({ name: `copy ${look.width}`, addons: [] });
      const { page } = await enter(look);
      const asked = await answerFor(page, { ...service, initial_password: 'shown-once' });
      await page.goto('/create');
      await page.getByRole('link', { name: 'From a recovery kit' }).click();
      const contents = page.getByLabel('Or its contents');
      await contents.fill('{"howdah": 1}');
      await page.getByText('this is no recovery kit').first().waitFor();
      const list = page.getByRole('button', { name: 'List its services' });
      expect(await list.getAttribute('aria-disabled')).toBe('true');

      await contents.fill(JSON.stringify(KIT));
      await page.getByLabel('Moment').fill('never');
      await page.keyboard.press('Enter');
      await page.getByRole('alert').filter({ hasText: REFUSAL }).waitFor();
      await page.getByLabel('Moment').fill('');
      await page.keyboard.press('Enter');
      await page.getByText('has no backup yet').waitFor();
      expect(await page.getByRole('alert').count()).toBe(0);

      const choice = page.getByRole('radio', { name: /^orders/ });
      await choice.focus();
      await page.keyboard.press('Space');
      await untilExpected('the choice is checked', async () =>
        expect(await choice.getAttribute('aria-checked')).toBe('true'),
      );
      const refused = page.getByRole('radio', { name: /^empty/ });
      expect(await refused.getAttribute('aria-disabled')).toBe('true');
      expect([await barriers(page), await overflow(page)]).toEqual([[], 0]);
      await page.getByLabel('Name', { exact: true }).fill('orders-staging');
      await page.keyboard.press('Enter');
      await page.waitForURL(`**/services/${service.service_id}`);
      await page.getByText('Save the password below now').waitFor();
      expect(asked).toEqual([{ kit: KIT, service: 'orders0000', name: 'orders-staging' }]);
    });

  test('another kit or moment needs another list', async () => {
    const { page } = await enter();
    await answerFor(page, {});
    await page.goto('/create/from-kit');
    await page.getByLabel('File', { exact: true }).waitFor();
    const [chooser] = await Promise.all([
      page.waitForEvent('filechooser'),
      page.getByLabel('File', { exact: true }).click(),
    ]);
    const buffer = Buffer.from(JSON.stringify(KIT));
    await chooser.setFiles({ name: 'kit.json', mimeType: 'application/json', buffer });
    await page.getByRole('button', { name: 'List its services' }).click();
    const choice = page.getByRole('radio', { name: /^orders/ });
    await choice.waitFor();
    await page.getByLabel('Moment').fill('2026-01-31T12:00:00Z');
    await choice.waitFor({ state: 'detached' });
  });

  test('the key of another project gets the reason when it asks', async () => {
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
    await tenant.page.goto('/create/from-kit');
    await tenant.page.getByLabel('Or its contents').fill(JSON.stringify(KIT));
    await tenant.page.getByRole('button', { name: 'List its services' }).click();
    await tenant.page.getByRole('alert').filter({ hasText: 'operator project' }).waitFor();
    await tenant.context.close();
  });
});
