import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { Command } from 'commander';
import { connect, homeDirectory } from '../connection.ts';
import { Failure } from '../output.ts';
import { findService } from './service.ts';

export function addPsql(program: Command): void {
  program
    .command('psql')
    .description('Open psql on a service. The password comes from PGPASSWORD, ~/.pgpass or the prompt.')
    .argument('<service>', 'id or name')
    .argument('[psql-options...]', 'handed to psql as they are')
    .passThroughOptions()
    .action(async (name: string, psqlOptions: string[]) => {
      const connection = await connect();
      const service = await findService(connection, name);
      const caPath = join(homeDirectory(), 'ca', 'ca.pem');
      const url = `host=${service.endpoint.host} port=${service.endpoint.port} user=tsdbadmin dbname=tsdb sslmode=verify-full sslrootcert=${caPath}`;
      const child = spawn('psql', [url, ...psqlOptions], { stdio: 'inherit' });
      const [code] = await Promise.race([
        once(child, 'exit'),
        once(child, 'error').then(() => {
          throw new Failure('psql is not installed: apt-get install postgresql-client');
        }),
      ]);
      process.exitCode = typeof code === 'number' ? code : 1;
    });
}
