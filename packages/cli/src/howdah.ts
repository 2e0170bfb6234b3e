/** `howdah …`: the command line. */
import { messageOf } from '@howdah/contract/thrown';
import { DryRunError, HowdahError, isUntrusted, NoAnswerError, type Schemas } from '@howdah/client';
import { CommanderError } from 'commander';
import { inOurWords } from './api-words.ts';
import { EXIT_CODES, exitOf } from './exit.ts';
import { notCarriedLines } from './follow.ts';
import { showTimesInFull } from './moment.ts';
import { FORMATS, note, paintNote, say, showAs } from './output.ts';
import { loadProgram } from './program.ts';

// A reader that stops early (`howdah service logs first | head`) is no error.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit();
  // The terminal was closed: the control plane goes on without it.
  if (error.code === 'EIO') return;
  throw error;
});

let asked: Record<string, unknown> = {};
const program = await loadProgram(process.argv.slice(2));
program.hook('preAction', (_program, command) => {
  asked = command.opts();
  const { ca, time }: { ca?: unknown; time?: unknown } = command.optsWithGlobals();
  if (typeof ca === 'string') process.env['HD_CA'] = ca;
  if (time === 'iso') showTimesInFull();
});

try {
  await program.parseAsync();
} catch (error) {
  if (error instanceof DryRunError && asked['dryRun'] === true) await showPlan(error.answer);
  else {
    if (!(error instanceof CommanderError)) note(`${paintNote.red('error:')} ${explain(error)}`);
    process.exitCode = EXIT_CODES[exitOf(error)];
  }
}

/** Prints what a dry run found. Every command with `--dry-run` ends here. */
async function showPlan(plan: Schemas['DryRun']): Promise<void> {
  const format = FORMATS.find((known) => known === asked['output']) ?? 'table';
  await showAs(format, plan, 'plan', () => {
    const { operation, note: said, not_carried: left } = plan;
    if (said !== undefined) say(said);
    for (const line of notCarriedLines(left, 'would not be carried over')) say(line);
    if (operation === null) return say('Nothing was done. There would be no operation.');
    say(
      'Nothing was done. It would ' +
        `${operation.kind}${operation.service_id === null ? '' : ` ${operation.service_id}`}:`,
    );
    for (const step of operation.steps) say(`  ${step}`);
  });
}

function explain(error: unknown): string {
  const text = messageOf(error);
  const message = error instanceof HowdahError ? inOurWords(text) : text;
  return error instanceof NoAnswerError ? `${message}${hintOf(error)}` : message;
}

/** The command or the option that helps. */
function hintOf(error: NoAnswerError): string {
  if (error.code === 'ECONNREFUSED') return ' (howdah status, howdah up)';
  return isUntrusted(error)
    ? '; name the file of the CA: --ca FILE, or HD_CA or NODE_EXTRA_CA_CERTS in the environment'
    : '';
}
