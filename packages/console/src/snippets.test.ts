import { expect, test } from 'vitest';
import { cliOf, curlOf } from './snippets.ts';

test('the command has every field of the body', () => {
  const request = {
    name: "Ana's orders",
    addons: [],
    cpu_millis: '1000',
    replica_count: 2,
    sync_replica_count: 1,
    environment_tag: 'PROD',
    enable_pooler: true,
    vpc_id: '1000',
    storage_gb: 50,
  } as const;
  expect(cliOf({ ...request, addons: [] }).replaceAll(' \\\n  ', ' ')).toBe(
    "howdah service create --name 'Ana'\\''s orders' --addons none --cpu-millis 1000 " +
      '--replicas 2 --sync 1 --environment PROD --pooler --vpc 1000 --storage-gb 50',
  );
  expect(cliOf({ name: 'x', addons: ['time-series', 'ai'] })).toContain('--addons time-series,ai');
  expect(curlOf({ ...request, addons: [] })).toContain(`"name":"Ana'\\''s orders"`);
});
