/**
 * The warm start: from the start of the process until the API answers, against Node's own start.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { stripVTControlCharacters } from 'node:util';
import type { Bench } from './lib/bench.ts';
import { openCloud } from './lib/cloud.ts';
import { interleave, measured, partsInWords, time, valuesOf } from './lib/measure.ts';
import { run } from './lib/run.ts';
import { compared } from './lib/table.ts';

export const up: Bench = {
  name: 'up',
  title: 'warm start of howdah up until it serves',
  run: async ({ here, rounds }) => {
    const cloud = await openCloud(here.directory);
    const start = async () => {
      cloud.output.length = 0;
      const { ms } = await time(cloud.up);
      // The last lines are written after the API answers.
      await sleep(100);
      return { value: ms, parts: partsSaid(cloud.output.join('')) };
    };
    const afterDown = measured(async () => {
      await cloud.stop('SIGTERM');
      return start();
    });
    const afterKill = measured(async () => {
      await cloud.stop('SIGKILL');
      return start();
    });
    const node = measured(async () => (await time(() => run(process.execPath, ['-e', '0']))).ms);
    await interleave(rounds, [afterDown, afterKill, node]);
    await cloud.end();
    const row = {
      goal: 'up',
      unit: 'ms',
      against: 'node -e 0',
      theirs: valuesOf(node),
      ratio: 'ours/theirs',
      bound: null,
    } as const;
    return [
      compared({
        ...row,
        what: 'warm start, metadata database to be started',
        ours: valuesOf(afterDown),
        limit: `ms: ${partsInWords(afterDown)}`,
      }),
      compared({
        ...row,
        what: 'warm start, metadata database runs',
        ours: valuesOf(afterKill),
        limit: `ms: ${partsInWords(afterKill)}`,
      }),
    ];
  },
};

/** The parts of the start as `howdah up` prints them: `✓ listen 4 ms`. */
function partsSaid(output: string): Record<string, number> {
  const parts: Record<string, number> = {};
  for (const [, name = '', value, unit] of stripVTControlCharacters(output).matchAll(
    /✓ (.+?) (?:after )?([\d.]+) (ms|s)/g,
  )) {
    parts[name] = Number(value) * (unit === 's' ? 1000 : 1);
  }
  return parts;
}
