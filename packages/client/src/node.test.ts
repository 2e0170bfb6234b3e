import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { findSettings, SettingsError } from './node.ts';

async function homeWith(credentials: object | null): Promise<string> {
  const home = await mkdtemp(join(tmpdir(), 'hd-settings-'));
  onTestFinished(() => rm(home, { recursive: true }));
  if (credentials !== null)
    await writeFile(join(home, 'credentials.json'), JSON.stringify(credentials));
  return home;
}
const file = { api_url: 'http://file/v1', project_id: 'pfile', public_key: 'fp', secret_key: 'fs' };
const environment = {
  HD_API: 'http://env/v1',
  HD_KEY: 'ep:es',
  HD_PROJECT: 'http://env/v1/projects/penv',
};

test('arguments win over the environment, and that over credentials.json', async () => {
  const HOWDAH_HOME = await homeWith(file);
  expect(await findSettings({}, { HOWDAH_HOME })).toEqual({
    apiUrl: 'http://file/v1',
    key: 'fp:fs',
    projectId: 'pfile',
  });
  expect(await findSettings({}, { HOWDAH_HOME, ...environment })).toEqual({
    apiUrl: 'http://env/v1',
    key: 'ep:es',
    projectId: 'penv',
  });
  expect(await findSettings({ key: 'ap:as' }, { HOWDAH_HOME })).toEqual({
    apiUrl: 'http://file/v1',
    key: 'ap:as',
    projectId: 'pfile',
  });
});

test('a missing setting is named, with the places that were read', async () => {
  const HOWDAH_HOME = await homeWith(null);
  await expect(findSettings({ apiUrl: 'http://x' }, { HOWDAH_HOME })).rejects.toThrow(
    SettingsError,
  );
  await expect(findSettings({ apiUrl: 'http://x' }, { HOWDAH_HOME })).rejects.toThrow(
    /^key, projectId: not given.*howdah env.*credentials\.json/s,
  );
});

test('invalid JSON in the credentials is reported with the file', async () => {
  const HOWDAH_HOME = await homeWith(null);
  await writeFile(join(HOWDAH_HOME, 'credentials.json'), '{ interrupted');
  await expect(findSettings({}, { HOWDAH_HOME })).rejects.toThrow(
    expect.objectContaining({
      name: 'SettingsError',
      message: expect.stringContaining(join(HOWDAH_HOME, 'credentials.json')),
    }),
  );
});

test('a key goes to its own API only, and a project is of the API that is asked', async () => {
  const HOWDAH_HOME = await homeWith({ ...file, api_url: 'http://127.0.0.1:8080/v1' });
  await expect(findSettings({}, { HOWDAH_HOME, HD_API: 'http://other/v1' })).rejects.toThrow(
    /^HD_KEY: is not set, and HD_API names http:\/\/other/,
  );
  expect(await findSettings({}, { HOWDAH_HOME, HD_API: 'http://localhost:8080/v1' })).toMatchObject(
    { key: 'fp:fs' },
  );
  await expect(
    findSettings({}, { HOWDAH_HOME, HD_PROJECT: 'http://other/v1/projects/p' }),
  ).rejects.toThrow(/^HD_PROJECT: is a project of http:\/\/other/);
});
