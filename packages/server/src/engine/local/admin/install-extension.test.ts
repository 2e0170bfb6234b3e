import { expect, test } from 'vitest';
import { planFor, planInstall } from './install-extension.ts';

test.each([
  ['postgis', 'postgresql-17-postgis-3'],
  ['pg_cron', 'postgresql-17-cron'],
  ['hypopg', 'postgresql-17-hypopg'],
  ['plpgsql_check', 'postgresql-17-plpgsql-check'],
])('%s is in %s', (name, packageName) => {
  const plan = planFor(name, [17], true);
  expect('command' in plan && plan.command.at(-1)).toBe(packageName);
});

test('each PostgreSQL of the system gets the package', () => {
  expect(planFor('vector', [18, 17], false)).toEqual({
    what: 'vector for PostgreSQL 18 and 17',
    command: [
      'apt-get',
      'install',
      '--yes',
      '--no-install-recommends',
      'postgresql-18-pgvector',
      'postgresql-17-pgvector',
    ],
    canRun: false,
  });
});

test('a text that cannot be the name of an extension is refused', async () => {
  for (const name of ['-o', 'a b', '', 'X'])
    expect(await planInstall(name)).toEqual({ why: expect.stringContaining('postgis') });
});
