/** The actions and tabs on the pages of a service, in a real browser. */
import { mkdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { findPgBackRest } from '../../server/test/probe.ts';
import { CHROMIUM, logIn, NO_CHROMIUM, openWindow } from './browser.ts';
import {
  browser,
  enter,
  installation,
  offsite,
  openService,
  PATIENCE_MS,
  setUp,
  tearDown,
} from './journeys-cloud.ts';
import { untilExpected } from '../../server/test/until.ts';

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
    const refused = other.page.getByRole('button', { name: 'Stop', exact: true });
    expect(await refused.getAttribute('aria-disabled')).toBe('true');
    await refused.hover({ force: true });
    await other.page.getByRole('tooltip').filter({ hasText: 'PROD' }).waitFor();
    await other.context.close();

    const { page } = await enter();
    await openService(page, service);
    await page.getByRole('button', { name: 'Stop', exact: true }).click();
    const dialog = page.getByRole('dialog', { name: 'in production is PROD' });
    const stop = dialog.getByRole('button', { name: 'Continue' });
    // A question that is closed is no failure.
    await dialog.getByRole('textbox').press('Escape');
    await dialog.waitFor({ state: 'hidden' });
    await page.getByRole('button', { name: 'Stop', exact: true }).click();
    expect(await page.getByText('Request failed').count()).toBe(0);
    await dialog.getByRole('textbox').fill('in productio');
    expect(await stop.getAttribute('aria-disabled')).toBe('true');
    expect((await installation.operations(service.service_id)).map(({ kind }) => kind)).toEqual([
      'create',
    ]);
    await dialog.getByRole('textbox').fill('in production');
    await stop.click();
    await page.getByText('Paused', { exact: true }).waitFor();
  });

  test('an extension is enabled and disabled by buttons, others show why not', async () => {
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
    await untilExpected('the extension is disabled and enabled', async () =>
      expect(
        (await installation.operations(service.service_id)).map(
          ({ kind, status }) => `${kind} ${status}`,
        ),
      ).toEqual(['disableExtension succeeded', 'enableExtension succeeded', 'create succeeded']),
    );
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
    await untilExpected('the restart has succeeded', async () => {
      const [restart] = await installation.operations(service.service_id);
      expect(`${restart?.kind} ${restart?.status}`).toBe('restart succeeded');
    });
  });

  test(
    'the operator adds a repository, saves its kit, and removes it by its name',
    { tags: 'slow' },
    async () => {
      const service = await installation.create({ name: 'backed up', addons: [] });
      const { page } = await enter();
      await mkdir(offsite());
      await page.goto('/project/repositories');
      await page.getByRole('heading', { name: 'No repository' }).waitFor();
      await page.getByLabel('Type', { exact: true }).selectOption('path');
      await page.getByLabel('Name', { exact: true }).fill('disk2');
      await page.getByLabel('Directory', { exact: true }).fill(offsite());
      await page.getByRole('button', { name: 'Add the repository' }).click();
      if ((await findPgBackRest()) === null) {
        await page.getByRole('alert').filter({ hasText: 'apt-get install pgbackrest' }).waitFor();
        return;
      }
      const kit = page.getByRole('dialog', { name: 'The recovery kit of disk2' });
      await kit.getByText('The kit is a secret').waitFor();
      const [download] = await Promise.all([
        page.waitForEvent('download'),
        kit.getByRole('button', { name: 'Download the kit' }).click(),
      ]);
      expect(download.suggestedFilename()).toBe('recovery-kit-disk2.json');
      const saved: unknown = JSON.parse(await readFile(await download.path(), 'utf8'));
      const { data: listed } = await installation.client.GET('/repositories');
      const { data: wanted } = await installation.client.POST(
        '/repositories/{repository_id}/recoveryKit',
        { params: { path: { repository_id: listed?.[0]?.id ?? '' } } },
      );
      expect(saved).toEqual(wanted);

      // The page of the service first: the pill of the repository is about all services.
      await openService(page, service, 'backups');
      const there = page.getByRole('region', { name: 'Off the machine' });
      await there.getByText('disk2').waitFor();
      await there
        .getByText('Last backup')
        .locator('..')
        .getByText(/ago|now/)
        .waitFor();
      const points = page.getByRole('region', { name: 'Points in time' });
      await points.getByText(/ · kept for 3 days/).waitFor();
      await points.getByText(/ · kept for 14 days/).waitFor();
      await points.getByLabel('Days that repositories keep its backups').fill('30');
      await points.getByRole('button', { name: 'Set retention' }).click();
      await points.getByText(/ · kept for 30 days/).waitFor();

      await page.goto('/project/repositories');
      const card = page.getByRole('region', { name: 'disk2' });
      await card.getByText('First backups').waitFor({ state: 'detached' });
      await card.getByText('none yet').waitFor({ state: 'detached' });
      // A repository that loses its contents says so, until it is added again elsewhere.
      await rm(join(offsite(), 'howdah'), { recursive: true });
      await card.getByRole('button', { name: 'Check now' }).click();
      await card
        .getByRole('alert')
        .filter({ hasText: 'remove it here and add it again' })
        .waitFor();
      await card.getByRole('button', { name: 'Remove…' }).click();
      const dialog = page.getByRole('dialog', { name: 'Remove disk2' });
      await dialog.getByRole('textbox').fill('disk2');
      await dialog.getByRole('button', { name: 'Remove the repository' }).click();
      await page.getByRole('heading', { name: 'No repository' }).waitFor();
    },
  );

  test('the key of another project sees no repositories, and why', async () => {
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
    await tenant.page.goto('/project/repositories');
    await tenant.page.getByText(/^You cannot see repositories: .*operator project/).waitFor();
    expect(await tenant.page.getByRole('textbox').count()).toBe(0);
    await tenant.context.close();
  });

  test('a fork of now can have a newer version of PostgreSQL than its parent', async () => {
    const service = await installation.create({ name: 'to upgrade', service_type: 'POSTGRES' });
    const { page } = await enter();
    await page.route('**/regions', async (route) => {
      const response = await route.fetch();
      const [region, ...others] = await response.json();
      for (const { versions } of region.service_types)
        versions.unshift({ pg_version: '98', version: '98.1', available: true });
      return route.fulfill({ response, json: [region, ...others] });
    });
    await openService(page, service, 'backups');
    const version = page.getByLabel('PostgreSQL version');
    await version.selectOption('98.1');
    await page.getByRole('radio', { name: 'As it was at a point in time' }).click();
    await version.waitFor({ state: 'detached' });
    await page.getByRole('radio', { name: 'As it is now' }).click();
    const asked = page.waitForRequest('**/forkService');
    await page.getByRole('button', { name: 'Fork', exact: true }).last().click();
    expect((await asked).postDataJSON()).toMatchObject({ fork_strategy: 'NOW', pg_version: '98' });
    await page.getByText('PostgreSQL 98 is needed').first().waitFor();
  });

  test('a fork is reset once its name is typed, and no other service has the button', async () => {
    const parent = await installation.create({ name: 'of the fork', service_type: 'POSTGRES' });
    const { data: fork } = await installation.client.POST(
      '/projects/{project_id}/services/{service_id}/forkService',
      {
        params: { path: { project_id: installation.projectId, service_id: parent.service_id } },
        body: { fork_strategy: 'NOW', name: 'to reset' },
      },
    );
    const service = await installation.until(fork?.service_id ?? '', 'READY');
    const { page } = await enter();
    await openService(page, parent, 'settings');
    await page.getByRole('button', { name: 'Delete…' }).waitFor();
    expect(await page.getByRole('button', { name: 'Reset…' }).count()).toBe(0);
    await openService(page, service, 'settings');
    await page.getByText('Beginning of the fork').click();
    await page.getByRole('button', { name: 'Reset…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Reset to reset' });
    await dialog.getByText(/Everything that was written to the fork is lost/).waitFor();
    await dialog.getByRole('textbox').fill('to reset');
    const asked = page.waitForRequest('**/reset');
    await dialog.getByRole('button', { name: 'Reset the fork' }).click();
    expect((await asked).postDataJSON()).toEqual({ target: 'BEGINNING', confirm: 'to reset' });
    await untilExpected('the fork is reset', async () =>
      expect((await installation.operations(service.service_id))[0]).toMatchObject({
        kind: 'reset',
        status: 'succeeded',
      }),
    );
  });

  test('a region on Kubernetes offers no fork of a snapshot that is to come', async () => {
    const service = await installation.create({ name: 'just made', addons: [] });
    const { page } = await enter();
    let hasOne = false;
    await page.route('**/regions', async (route) => {
      const response = await route.fetch();
      const [region, ...others] = await response.json();
      return route.fulfill({ response, json: [{ ...region, engine: 'kubernetes' }, ...others] });
    });
    await page.route('**/backupStatus', async (route) => {
      const response = await route.fetch();
      const answer = await response.json();
      return route.fulfill({ response, json: hasOne ? answer : { ...answer, snapshots: [] } });
    });
    await openService(page, service, 'backups');
    const choice = page.getByRole('radio', { name: 'From the last snapshot' });
    await page.getByText('the first one is taken a minute or two after the').waitFor();
    expect(await choice.isDisabled()).toBe(true);
    hasOne = true;
    await page.reload();
    await untilExpected('the choice is enabled', async () =>
      expect(await choice.isDisabled()).toBe(false),
    );
    await choice.click();
    expect(await choice.isChecked()).toBe(true);
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
      await untilExpected('all tabs are within the page', async () => {
        const boxes = labels.map((name) => tabs.getByRole('link', { name }).boundingBox());
        expect(
          (await Promise.all(boxes)).every(
            (box) => box !== null && box.x >= 0 && box.x + box.width <= width,
          ),
        ).toBe(true);
      });
    }
  });
});
