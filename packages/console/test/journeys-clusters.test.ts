/** The page of regions with a Kubernetes cluster, in a real browser with a whole installation. */
import type { Locator } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { listOf, startFakeKubernetes, withStore } from '../../server/test-kubernetes/probe.ts';
import { CHROMIUM, NO_CHROMIUM } from './browser.ts';
import { enter, installation, setUp, tearDown } from './journeys-cloud.ts';

beforeAll(setUp);
afterAll(tearDown);

describe.skipIf(CHROMIUM === null)(`a Kubernetes cluster in Chromium${NO_CHROMIUM}`, () => {
  test('it becomes a region, is examined, gets its settings and is removed', async () => {
    const kubernetes = await startFakeKubernetes();
    onTestFinished(kubernetes.close);
    const { page } = await enter();
    await page.goto('/project/regions');
    const form = page.getByRole('region', { name: 'New region on Kubernetes' });
    await form.getByLabel('Code').fill('kube');
    const chosen = page.waitForEvent('filechooser');
    await form.getByLabel('Kubeconfig').click();
    await (
      await chosen
    ).setFiles({
      name: 'kube.yaml',
      mimeType: 'application/yaml',
      buffer: Buffer.from(kubernetes.kubeconfig),
    });
    await form.getByRole('button', { name: 'More settings' }).click();
    // The message of the API is shown, and nothing that was filled in is lost.
    await form.getByLabel('First port').fill('30200');
    await form.getByLabel('Last port').fill('30100');
    await form.getByRole('button', { name: 'Add the region' }).click();
    await form.getByText('last_port: found 30100').waitFor();
    await form.getByLabel('Last port').fill('30300');
    await form.getByRole('button', { name: 'Add the region' }).click();

    const region = page.getByRole('region', { name: 'kube', exact: true });
    await region.getByText('30200 to 30300').waitFor();
    expect(await form.getByLabel('Code').inputValue()).toBe('');
    await region.getByRole('button', { name: 'Examine the cluster' }).click();
    const cluster = region.getByRole('region', { name: 'The cluster of kube' });
    await cluster.getByRole('listitem').first().waitFor();
    const shown = await cluster.getByRole('listitem').locator('strong').allTextContents();
    const said = await installation.cli('region', 'doctor', 'kube', '-o', 'json');
    const findings: unknown = JSON.parse(said.stdout);
    expect(shown).toEqual([findings].flat().map((one) => Object(one).what));
    expect(shown.length).toBeGreaterThan(4);

    await setImages(region);
    await setStore(region);

    await region.getByRole('button', { name: 'Remove…' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('textbox').fill('kube');
    await dialog.getByRole('button', { name: 'Remove the region' }).click();
    await region.waitFor({ state: 'detached' });
    expect(await kube()).toBeUndefined();
  });

  /** The versions that the form has are kept, and another one is added. */
  async function setImages(region: Locator): Promise<void> {
    await region.getByRole('button', { name: 'Images…' }).click();
    const before = await region.getByLabel('Version of PostgreSQL').count();
    expect(before).toBeGreaterThan(0);
    await region.getByRole('button', { name: 'Another version' }).click();
    await region.getByLabel('Version of PostgreSQL').last().fill('19');
    const image = region.getByLabel('Image of PostgreSQL 19');
    await image.fill('registry.example/postgresql:19 rc');
    await region.getByLabel('has vector').last().check();
    // The message of the API is shown, and nothing that was filled in is lost.
    await region.getByRole('button', { name: 'Set the images' }).click();
    await region.getByText('found "registry.example/postgresql:19 rc"').waitFor();
    await image.fill('registry.example/postgresql:19');
    await region.getByRole('button', { name: 'Set the images' }).click();
    await region.getByText('registry.example/postgresql:19, vector').waitFor();
    await region.getByRole('button', { name: 'Set the images' }).waitFor({ state: 'detached' });
    const found = await kube();
    expect(Object.keys(found?.images ?? {})).toHaveLength(before + 1);
    expect(found).toMatchObject({
      images: { 19: 'registry.example/postgresql:19' },
      extensions: { 19: ['vector'] },
    });
  }

  /** A store that does not answer is refused, and so is another place that is not asked for. */
  async function setStore(region: Locator): Promise<void> {
    const [form, submit] = [
      region.getByRole('button', { name: 'Object store…' }),
      region.getByRole('button', { name: 'Set the object store' }),
    ];
    await withStore(
      (_, answer) => answer.end(listOf('')),
      async ({ endpoint, caPem }) => {
        await form.click();
        await region.getByLabel('Address').fill('https://127.0.0.1:1');
        await region.getByLabel('Bucket').fill('backups');
        await region.getByLabel('Region').fill('us-east-1');
        await region.getByLabel('Key id').fill('id');
        await region.getByLabel('Key', { exact: true }).fill('secret');
        await submit.click();
        await region.getByText('https://127.0.0.1:1').waitFor();
        await region.getByLabel('Address').fill(endpoint);
        const chosen = region.page().waitForEvent('filechooser');
        await region.getByLabel('Certificates of its authority').click();
        const [name, mimeType] = ['ca.pem', 'application/x-pem-file'];
        await (await chosen).setFiles({ name, mimeType, buffer: Buffer.from(caPem ?? '') });
        await submit.click();
        await submit.waitFor({ state: 'detached' });
        expect(await kube()).toMatchObject({ object_store: { endpoint, bucket: 'backups' } });

        await form.click();
        expect(await region.getByLabel('Key', { exact: true }).inputValue()).toBe('');
        await region.getByLabel('Bucket').fill('others');
        await region.getByLabel('Key', { exact: true }).fill('secret');
        const again = region.page().waitForEvent('filechooser');
        await region.getByLabel('Certificates of its authority').click();
        await (await again).setFiles({ name, mimeType, buffer: Buffer.from(caPem ?? '') });
        await submit.click();
        await region.getByText('another place begins empty').waitFor();
        await region.getByLabel('Another place').check();
        await submit.click();
        await submit.waitFor({ state: 'detached' });
        expect(await kube()).toMatchObject({ object_store: { endpoint, bucket: 'others' } });
      },
    );
  }

  const kube = async () =>
    (await installation.client.GET('/regions')).data?.find(({ code }) => code === 'kube');
});
