/** Looks the machine over: what is there, what is missing, and the command that adds it. */
import { SERVICE_TYPES, ADDONS_OF_TYPE } from '@howdah/contract';
import { CLONE_COST } from './engine/local/clone.ts';
import { installationFor, missingFor, OLDEST_MAJOR } from './engine/local/installations.ts';
import { limitsNote } from './engine/local/limits.ts';
import { prepareMachine } from './engine/local/machine.ts';
import { run } from './engine/local/run.ts';

/** One thing looked at. `mend` is the command that adds what is missing. */
export type Finding = { what: string; state: 'ok' | 'missing' | 'note'; found: string; mend?: string };

export async function doctor(home: string): Promise<Finding[]> {
  const machine = await prepareMachine(home);
  const { usable, tooOld } = machine.installations;
  return [
    { what: 'Node', state: 'ok', found: process.version },
    machine.owner === null
      ? {
          what: 'privileges',
          state: 'note',
          found: 'not root: databases run as this user',
          mend: 'as root, databases run as a user of their own and limits can be enforced',
        }
      : { what: 'privileges', state: 'ok', found: `root; databases run as the user ${machine.owner.name}` },
    machine.namespaces === 'none'
      ? { what: 'PID namespaces', state: 'note', found: 'not allowed here: a busy backend may outlive its killed server for a while' }
      : { what: 'PID namespaces', state: 'ok', found: `one per server, ${machine.namespaces}` },
    {
      what: 'file system',
      state: machine.cloneMethod === 'copy' ? 'note' : 'ok',
      found: `${machine.layout.root}: ${CLONE_COST[machine.cloneMethod]}`,
    },
    { what: 'size limits', state: machine.limits.kind === 'none' ? 'note' : 'ok', found: limitsNote(machine.limits) },
    ...usable.map(({ version, source, bin, extensions }): Finding => ({
      what: `PostgreSQL ${version}`,
      state: 'ok',
      found: `${source}, ${bin}; extensions: ${extensions.join(', ') || 'none of timescaledb, vector'}`,
    })),
    ...tooOld.map(({ version, bin }): Finding => ({
      what: `PostgreSQL ${version}`,
      state: 'note',
      found: `${bin}: not used; before ${OLDEST_MAJOR} a role that may create roles can make itself one that reads the server's files`,
    })),
    ...SERVICE_TYPES.map((type): Finding => {
      const installation = installationFor(usable, ADDONS_OF_TYPE[type]);
      return installation === null
        ? { what: `type ${type}`, state: 'missing', found: 'cannot be had', mend: missingFor(usable, ADDONS_OF_TYPE[type]) }
        : { what: `type ${type}`, state: 'ok', found: `on PostgreSQL ${installation.version} (${installation.source})` };
    }),
    await program('PgBouncer', 'pgbouncer', ['--version'], 'apt-get install pgbouncer'),
    await program('HAProxy', 'haproxy', ['-v'], 'apt-get install haproxy'),
  ];
}

async function program(what: string, command: string, args: string[], mend: string): Promise<Finding> {
  for (const path of [command, `/usr/sbin/${command}`]) {
    try {
      return { what, state: 'ok', found: (await run(path, args)).split('\n')[0] ?? '' };
    } catch {
      continue; // looked for in the next place
    }
  }
  return { what, state: 'missing', found: 'not installed', mend };
}
