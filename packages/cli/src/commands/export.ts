import { simulationNote } from '@howdah/contract/simulated';
import { Option, type Command } from 'commander';
import { verb } from '../command.ts';
import { connect } from '../connection.ts';
import { Failure } from '../exit.ts';
import { findService } from '../find.ts';

type ExportFormat = 'custom' | 'plain' | 'tar' | 'directory';

export function addExport(program: Command): void {
  verb(program, 'export <service>', {
    does:
      'Dump a service with the pg_dump of its version. The password comes from ' +
      'PGPASSWORD, ~/.pgpass or the prompt.',
    example: 'howdah export orders --file orders.dump',
  })
    .option('--file <file>', 'where to write it; default: to standard output')
    .addOption(
      new Option('--format <format>', "one of pg_dump's formats")
        .choices(['custom', 'plain', 'tar', 'directory'])
        .default('custom'),
    )
    .action(async (wanted: string, { file, format }: { file?: string; format: ExportFormat }) => {
      if (file === undefined && (process.stdout.isTTY || format === 'directory'))
        throw new Failure('--file: give the path of the file, or redirect the output', 'usage');
      const connection = await connect();
      const service = await findService(connection, wanted);
      const simulated = simulationNote(service);
      if (simulated !== null) throw new Failure(`${wanted}: ${simulated}`, 'usage');
      const { endpointOfService, withPassword } = await import('../transfer/endpoint.ts');
      const { exportService } = await import('../transfer/files.ts');
      const source = await withPassword(
        await endpointOfService(connection, service, null),
        'howdah export',
      );
      await exportService(source, format, file ?? null);
    });
}
