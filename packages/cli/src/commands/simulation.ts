import { readFile } from 'node:fs/promises';
import { text as readAll } from 'node:stream/consumers';
import { messageOf } from '@howdah/contract/thrown';
import type { Command } from 'commander';
import { noun, verb, type Changing, type Printing } from '../command.ts';
import { answered, connect } from '../connection.ts';
import { Failure } from '../exit.ts';
import { secondsOf } from '../moment.ts';
import { show } from '../output.ts';
import { SIMULATION_VIEW } from '../views.ts';

export function addSimulation(program: Command): void {
  const simulation = noun(
    program,
    'simulation',
    'Script the simulated region, which howdah up --simulated-region adds.',
  );

  verb(simulation, 'get', {
    does: 'Show the time of the simulated region, and its script.',
    example: 'howdah simulation get',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    const { client } = await connect();
    await show(output, await answered(client.GET('/regions/simulated')), SIMULATION_VIEW);
  });

  verb(simulation, 'script <script-file>', {
    does:
      'Set the script, which is JSON in a file; - reads it from standard input. ' +
      '{} ends all delays and failures.',
    example: 'howdah simulation script slow-creates.json',
    takes: ['output', 'dryRun'],
  }).action(async (file: string, options: Changing) => {
    const { client } = await connect(options);
    const script = parsed(file, file === '-' ? await readAll(process.stdin) : await read(file));
    const set = client.PUT('/regions/simulated/script', { body: script });
    await show(options.output, await answered(set), SIMULATION_VIEW);
  });

  verb(simulation, 'advance <time>', {
    does:
      'Let time pass at once, such as 20m or 1d12h: ' +
      'delays end, and events of the script happen.',
    example: 'howdah simulation advance 20m',
    takes: ['output', 'dryRun'],
  }).action(async (time: string, options: Changing) => {
    const { client } = await connect(options);
    const seconds = secondsOf('time', time);
    const advanced = client.POST('/regions/simulated/clock', { body: { seconds } });
    await show(options.output, await answered(advanced), SIMULATION_VIEW);
  });
}

async function read(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    throw new Failure(`${file}: ${messageOf(error)}`, 'usage');
  }
}

/** The API checks what the script says. */
function parsed(file: string, json: string): Record<string, never> {
  try {
    return JSON.parse(json);
  } catch (error) {
    throw new Failure(`${file}: is not JSON: ${messageOf(error)}`, 'usage');
  }
}
