/** The programs for each client connect as they stand, and verify the server's certificate. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { rootCertificates } from 'node:tls';
import { promisify } from 'node:util';
import type { ClientName } from '@howdah/contract/connect';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';

const run = promisify(execFile);
const temporary = process.env['TMPDIR'] ?? '/var/tmp';
const hasPsql = await run('psql', ['--version']).then(
  () => true,
  () => false,
);
if (!hasPsql)
  process.stdout.write(
    'connect.test.ts: psql is not tested, since it is missing: apt-get install postgresql-client\n',
  );

describe('programs for clients', () => {
  let cloud: Installation;
  let service: Service & { initial_password: string };
  let directory: string;

  beforeAll(async () => {
    cloud = await install();
    service = await cloud.create({ name: 'first', service_type: 'POSTGRES' });
    directory = await mkdtemp(join(temporary, 'hd-connect-'));
    const modules = fileURLToPath(new URL('../../../node_modules', import.meta.url));
    await symlink(modules, join(directory, 'node_modules'));
  });
  afterAll(async () => {
    await rm(directory, { recursive: true });
    expect(await cloud.destroy()).toEqual([]);
  });

  const output = async (
    command: string,
    args: readonly string[],
    password = service.initial_password,
  ): Promise<string> => {
    const { stdout } = await run(command, args, {
      cwd: directory,
      env: { ...process.env, PGPASSWORD: password },
    });
    return stdout;
  };
  const printed = async (client: ClientName): Promise<string> =>
    (await cloud.cli('url', 'first', '--for', client)).stdout;

  test.each(['pg', 'postgres.js'] as const)('%s', async (client) => {
    await writeFile(join(directory, 'connect.mjs'), await printed(client));
    expect(await output('node', ['connect.mjs'])).toContain('PostgreSQL');
    await expect(output('node', ['connect.mjs'], 'wrong')).rejects.toThrow('28P01');
    // The certificate is verified: another CA does not do.
    await writeFile(join(directory, 'other.pem'), rootCertificates[0] ?? '');
    const ca = join(cloud.home, 'ca', 'ca.pem');
    const program = await printed(client);
    expect(program).toContain(ca);
    await writeFile(join(directory, 'connect.mjs'), program.replace(ca, 'other.pem'));
    await expect(output('node', ['connect.mjs'])).rejects.toThrow(/certificate/);
  });

  test.runIf(hasPsql)('psql', async () => {
    const line = `${(await printed('psql')).trim()} -Atc 'select version()'`;
    expect(await output('sh', ['-c', line])).toContain('PostgreSQL');
  });

  test('an unknown client is refused, and the known ones are named', async () => {
    const refused = await cloud.cli('url', 'first', '--for', 'cobol');
    expect(refused.code).toBe(2);
    expect(refused.stderr).toContain('there is no program for cobol; there are: uri, psql, pg');
  });
});
