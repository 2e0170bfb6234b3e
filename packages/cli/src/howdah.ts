/** `howdah …`: the command line. Each command is a short file; all but up, down and doctor are thin over the API. */
import { HowdahError } from '@howdah/client';
import { Command, CommanderError } from 'commander';
import pc from 'picocolors';
import { addAudit } from './commands/audit.ts';
import { addDoctor } from './commands/doctor.ts';
import { addDown } from './commands/down.ts';
import { addEnv } from './commands/env.ts';
import { addPsql } from './commands/psql.ts';
import { addService } from './commands/service.ts';
import { addStatus } from './commands/status.ts';
import { addUp } from './commands/up.ts';
import { Failure } from './output.ts';

// A reader that has seen enough (`howdah service logs first | head`) is no error.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit();
  throw error;
});

const program = new Command('howdah')
  .description('Your own Postgres cloud.')
  .version('0.1.0')
  .exitOverride()
  .enablePositionalOptions()
  .showHelpAfterError('(howdah help shows the commands)');

for (const add of [addUp, addDown, addStatus, addDoctor, addAudit, addEnv, addService, addPsql]) add(program);

try {
  await program.parseAsync();
} catch (error) {
  if (error instanceof CommanderError) process.exitCode = error.exitCode === 0 ? 0 : 2; // help and version end well; the rest was asked for wrongly
  else {
    process.stderr.write(`${pc.red('error')} ${error instanceof Error ? error.message : String(error)}\n`);
    process.exitCode = error instanceof Failure ? error.exitCode : error instanceof HowdahError ? exitCodeOf(error) : 1;
  }
}

/** What the API refused, as {@link Failure} numbers it. */
function exitCodeOf({ code }: HowdahError): number {
  if (code === 'NOT_FOUND') return 3;
  return code === 'INVALID_REQUEST' ? 2 : 1;
}
