/** The actions and tabs on the pages of a service, in a real browser. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CHROMIUM, logIn, NO_CHROMIUM, openWindow } from './browser.ts';
import {
  browser,
  enter,
  eventually,
  installation,
  openService,
  PATIENCE_MS,
  setUp,
  tearDown,
} from './journeys-cloud.ts';

beforeAll(setUp);
afterAll(tearDown);

describe.skipIf(CHROMIUM === null)(`actions of a service in Chromium${NO_CHROMIUM}`, () => {
  test('stopping a PROD service needs its name and an admin', async () => {
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

  test('an extension is enabled and disabled by buttons, others show why they are not', async () => {
    const service = await installation.create({ name: 'extended', addons: [] });
    const { page } = await enter();
    await openService(page, service, 'extensions');
    const row = (name: string) => page.getByRole('row').filter({ hasText: name }).first();
    await row('dblink').getByText('Refused: it connects to other servers').waitFor();
    expect(await row('dblink').getByRole('button').count()).toBe(0);
    await row('pgstattuple').getByRole('button', { name: 'Enable pgstattuple' }).click();
    await row('pgstattuple').getByText('enabled', { exact: true }).waitFor();
    const kept = row('plpgsql').getByRole('button', { name: 'Disable plpgsql' });
    expect(await kept.getAttribute('aria-disabled')).toBe('true');
    await kept.hover({ force: true });
    await page.getByRole('tooltip').filter({ hasText: 'it cannot be disabled' }).waitFor();
    await page.getByText('Ready', { exact: true }).waitFor();
    await row('pgstattuple').getByRole('button', { name: 'Disable pgstattuple' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Disable' }).click();
    await row('pgstattuple').getByText('available', { exact: true }).waitFor();
    await eventually(async () =>
      (await installation.operations(service.service_id)).map(
        ({ kind, status }) => `${kind} ${status}`,
      ),
    ).toEqual(['disableExtension succeeded', 'enableExtension succeeded', 'create succeeded']);
  });

  test('a pending minor version is shown, and a restart is one click away', async () => {
    const service = await installation.create({ name: 'behind', addons: [] });
    const { page } = await enter();
    const message = 'PostgreSQL 18.9 is installed, and it runs 18.8';
    await page.route(`**/services/${service.service_id}`, async (route) => {
      if (route.request().resourceType() !== 'fetch') return route.continue();
      const response = await route.fetch();
      const warnings = [{ code: 'MINOR_VERSION', message }];
      return route.fulfill({ response, json: { ...(await response.json()), warnings } });
    });
    await openService(page, service);
    await page.getByText(message).waitFor();
    await page.getByRole('button', { name: 'Restart' }).click();
    await eventually(async () => {
      const [restart] = await installation.operations(service.service_id);
      return `${restart?.kind} ${restart?.status}`;
    }).toBe('restart succeeded');
  });

  test('the first and the chosen tab of a service are in sight', async () => {
    const service = await installation.create({ name: 'with tabs', addons: [] });
    for (const [width, labels] of [
      [1280, ['Overview', 'Settings']],
      [1200, ['Overview', 'Settings']],
      [820, ['Overview', 'Settings']],
      [390, ['Settings']],
    ] as const) {
      const { page } = await enter({ theme: 'light', width });
      await openService(page, service, 'settings');
      const tabs = page.getByRole('navigation', { name: 'Service' });
      await eventually(async () => {
        const boxes = labels.map((name) => tabs.getByRole('link', { name }).boundingBox());
        return (await Promise.all(boxes)).every(
          (box) => box !== null && box.x >= 0 && box.x + box.width <= width,
        );
      }).toBe(true);
    }
  });
});
