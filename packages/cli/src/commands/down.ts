import type { Command } from 'commander';
import { verb } from '../command.ts';
import { homeDirectory } from '../connection.ts';
import { Failure } from '../exit.ts';
import { say } from '../output.ts';
import { loadServer } from '../server.ts';

/** The time limit of an orderly stop: running steps end first. */
const STOP_DEADLINE_MS = 60_000;

export function addDown(program: Command): void {
  const does = 'Stop the control plane; the databases keep running unless --databases is given.';
  verb(program, 'down', { does, example: 'howdah down --databases' })
    .option('--databases', 'stop the databases as well')
    .action(async ({ databases }: { databases?: true }) => {
      const server = await loadServer();
      const home = homeDirectory();
      const control = await server.findControl(home);
      if (control === null) say('The control plane is not running.');
      else {
        const target = await server.findProcess(control.pid);
        server.signal(control.pid, 'SIGTERM');
        if (target !== null && !(await server.waitUntilGone(target, STOP_DEADLINE_MS))) {
          throw new Failure(
            `the control plane (process ${control.pid}) does not end; its log has the reason: ${home}/logs/control.log`,
          );
        }
        say(
          `The control plane has stopped${databases === true ? '.' : '; the databases keep running.'}`,
        );
      }
      if (databases !== true) return;
      const stopped = await server.stopDatabases(home, (id) => say(`stopped ${id}`));
      say(
        `${stopped} ${stopped === 1 ? 'database' : 'databases'} stopped. They start again with howdah up.`,
      );
    });
}
