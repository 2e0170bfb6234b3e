import { SERVICE_SIZES } from '@howdah/contract';
import { expect, test } from 'vitest';
import { configFiles } from './files.ts';
import type { ServerInput } from '../../postgres/server-conf.ts';
import { instancePaths } from '../host/layout.ts';

const input: ServerInput = {
  paths: instancePaths('/srv/here'),
  installation: { major: 17, readOnly: { path: null } },
  extensions: [],
  size: SERVICE_SIZES[0],
  storageGb: 10,
  listen: { address: '127.0.0.1', port: 20001 },
  allowedNetworks: null,
};
const lines = (text: string) => text.split('\n').filter((line) => line !== '');

test('a service with a user of its own sees no accounts but its own', () => {
  const owner = { name: 'howdah-service', uid: 70_001, gid: 70_001 };
  const gateway = { name: 'howdah-gateway', uid: 998, gid: 997 };
  const made = configFiles(input, { control: 'root', owner, gateway });
  expect(lines(made.passwd ?? '').map((line) => line.split(':').slice(0, 3))).toEqual([
    ['root', 'x', '0'],
    ['howdah-service', 'x', '70001'],
    ['howdah-gateway', 'x', '998'],
    ['nobody', 'x', '65534'],
  ]);
});

test('a service that runs as another user sees the accounts of the machine', () => {
  const owner = { name: 'howdah', uid: 999, gid: 999 };
  const made = configFiles(input, { control: 'root', owner, gateway: null });
  expect(made).not.toHaveProperty('passwd');
});
