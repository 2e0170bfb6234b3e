import { ALERT_RULE_NAMES } from '@howdah/contract/alerts';
import type { Command } from 'commander';
import { ENVIRONMENTS } from '@howdah/contract/types';
import { oneOf, verb } from '../command.ts';
import { complete, type Candidate } from '../complete.ts';
import { answered, connect, type Connection } from '../connection.ts';
import {
  ALLOW_LISTS,
  DELETED_SERVICES,
  DESTINATIONS,
  EXPORTERS,
  VPCS,
  WEBHOOKS,
  findPath,
  findVpc,
  keysOf,
  listServices,
  ofProject,
  pathOfVpc,
  peeringsOf,
} from '../find.ts';
import { peerNames } from '../names.ts';
import { say } from '../output.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;

export function addCompletion(program: Command): void {
  verb(program, 'completion <shell>', {
    does: 'Print a script that makes a shell complete commands, options and names.',
    example: 'eval "$(howdah completion bash)"',
  }).action((shell: string) => say(SCRIPTS[oneOf('shell', SHELLS, shell)]));

  // The scripts call this with all words up to the cursor.
  program
    .command('__complete', { hidden: true })
    .argument('[words...]')
    .allowUnknownOption()
    .passThroughOptions()
    .helpOption(false)
    .action(async (words: string[]) => {
      for (const { value, about } of await complete(program, words, findValues))
        say(`${value}\t${about.split('\n', 1)[0]}`);
    });
}

/** Kinds whose values are fixed. */
const CHOICES: Readonly<Record<string, readonly string[]>> = {
  environment: ENVIRONMENTS,
  shell: SHELLS,
};

/**
 * The values of a kind. Where the API does not answer there are none: a completion has no place for
 * an error.
 */
async function findValues(kind: string, [first = '']: readonly string[]): Promise<Candidate[]> {
  const choices = CHOICES[kind];
  if (choices !== undefined) return choices.map((value) => ({ value, about: '' }));
  const list = LISTERS[kind];
  if (list === undefined) return [];
  try {
    return await list(await connect({ retries: 0 }), first);
  } catch {
    return [];
  }
}

/**
 * Reads the values of one kind.
 *
 * @param first the first argument of the command: the service or the VPC
 */
type Lister = (connection: Connection, first: string) => Promise<Candidate[]>;

const LISTERS: Readonly<Record<string, Lister>> = {
  service: async (connection) =>
    named(
      (await listServices(connection)).map(({ service_id: id, name, status }) => ({
        id,
        name,
        about: status,
      })),
    ),

  'deleted-service': async (connection) => {
    const deleted = await DELETED_SERVICES.list(connection);
    return named(deleted.map(({ service_id: id, name, deleted: at }) => ({ id, name, about: at })));
  },

  set: async (connection, service) => {
    const of = await findPath(connection, service);
    const sets = await answered(
      connection.client.GET('/projects/{project_id}/services/{service_id}/replicaSets', of),
    );
    return named(sets.map(({ id, name, status }) => ({ id, name, about: status })));
  },

  vpc: async (connection) => {
    const vpcs = await VPCS.list(connection);
    return named(vpcs.map(({ id, name, cidr }) => ({ id, name, about: cidr })));
  },

  'allow-list': async (connection) => {
    const lists = await ALLOW_LISTS.list(connection);
    return named(
      lists.map(({ allow_list_id: id, description: name, cidr_blocks: networks }) => ({
        id,
        name,
        about: networks.join(', '),
      })),
    );
  },

  exporter: async (connection) => {
    const exporters = await EXPORTERS.list(connection);
    return named(exporters.map(({ exporter_id: id, name, type }) => ({ id, name, about: type })));
  },

  peering: async (connection, vpc) => {
    const { path } = pathOfVpc(connection, (await findVpc(connection, vpc)).id);
    const peerName = await peerNames(connection, 'table');
    const peerings = await peeringsOf(vpc, path, peerName).list(connection);
    return named(
      peerings.map((peering) => ({
        id: peering.id,
        name: peerName(peering),
        about: peering.status,
      })),
    );
  },

  operation: async (connection) => {
    const operations = await answered(
      connection.client.GET('/projects/{project_id}/operations', {
        params: { ...ofProject(connection), query: { limit: '50' } },
      }),
    );
    return operations.map(({ id, kind, status }) => ({ value: id, about: `${kind} ${status}` }));
  },

  destination: async (connection) => {
    const destinations = await DESTINATIONS.list(connection);
    return named(destinations.map(({ id, name, type }) => ({ id, name, about: type })));
  },

  rule: async () => ALERT_RULE_NAMES.map((value) => ({ value, about: '' })),

  lease: async (connection) => {
    const params = ofProject(connection);
    const leases = await answered(
      connection.client.GET('/projects/{project_id}/leases', { params }),
    );
    return leases.map(({ id, from }) => ({ value: id, about: from }));
  },

  webhook: async (connection) => {
    const webhooks = await WEBHOOKS.list(connection);
    return webhooks.map(({ id, url }) => ({ value: id, about: url }));
  },

  key: async (connection) => {
    const keys = await keysOf(connection.projectId).list(connection);
    return named(keys.map(({ public_key: id, name, role }) => ({ id, name, about: role })));
  },

  project: async ({ client }) => {
    const projects = await answered(client.GET('/projects'));
    return named(projects.map(({ id, name }) => ({ id, name, about: id })));
  },

  region: async (connection) => {
    const regions = await answered(
      connection.client.GET('/projects/{project_id}/regions', { params: ofProject(connection) }),
    );
    return regions.map(({ code, engine }) => ({ value: code, about: engine }));
  },

  series: async (connection, service) => {
    const of = await findPath(connection, service);
    const series = await answered(
      connection.client.GET(
        '/projects/{project_id}/services/{service_id}/metrics/available-series',
        of,
      ),
    );
    return series.map((value) => ({ value, about: '' }));
  },
};

/** Candidates by name; things that share a name, by id. */
function named(things: readonly { id: string; name: string; about: string }[]): Candidate[] {
  return things.map(({ id, name, about }) => {
    const isAlone = things.filter((other) => other.name === name).length === 1;
    return isAlone ? { value: name, about } : { value: id, about: `${name}, ${about}` };
  });
}

/** Each script calls the program as it was typed, so that `./howdah` in a clone completes, too. */
const SCRIPTS: Record<(typeof SHELLS)[number], string> = {
  bash: `# eval "$(howdah completion bash)", in ~/.bashrc
_howdah() {
  local line
  COMPREPLY=()
  while IFS= read -r line; do
    COMPREPLY+=("$(printf '%q' "\${line%%$'\\t'*}")")
  done < <("$1" __complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _howdah howdah`,
  zsh: `#compdef howdah
# eval "$(howdah completion zsh)", in ~/.zshrc after compinit
_howdah() {
  local line
  local -a found
  while IFS= read -r line; do
    found+=("\${\${line%%$'\\t'*}//:/\\\\:}:\${line#*$'\\t'}")
  done < <("\${words[1]}" __complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)
  if (( \${#found} )); then _describe howdah found; else _files; fi
}
compdef _howdah howdah`,
  fish: `# howdah completion fish | source, in ~/.config/fish/config.fish
function __howdah_complete
    set -l words (commandline -opc) (commandline -ct)
    $words[1] __complete -- $words[2..-1] 2>/dev/null
end
complete -c howdah -f -a '(__howdah_complete)'
complete -c howdah -n 'not __howdah_complete | string length -q' -F`,
};
