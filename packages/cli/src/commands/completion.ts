import type { Command } from 'commander';
import { ENVIRONMENTS } from '@howdah/contract/types';
import { oneOf, verb } from '../command.ts';
import { complete, type Candidate } from '../complete.ts';
import { answered, connect, type Connection } from '../connection.ts';
import { findPath, findVpc, listServices, ofProject, pathOfVpc } from '../find.ts';
import { say } from '../output.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;

export function addCompletion(program: Command): void {
  verb(program, 'completion <shell>', {
    does: 'Print the script by which a shell completes commands, options, and names of services and other things.',
    example: 'eval "$(howdah completion bash)"',
  }).action((shell: string) => say(SCRIPTS[oneOf('shell', SHELLS, shell)]));

  // The scripts call it with all words up to the cursor.
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

/** Kinds of which everything is known. */
const CHOICES: Readonly<Record<string, readonly string[]>> = {
  environment: ENVIRONMENTS,
  shell: SHELLS,
};

/** What there is of a kind. Where the API does not answer, there is nothing to offer, and no place to say why. */
async function findValues(kind: string, args: readonly string[]): Promise<Candidate[]> {
  const choices = CHOICES[kind];
  if (choices !== undefined) return choices.map((value) => ({ value, about: '' }));
  try {
    return await listValues(await connect({ retries: 0 }), kind, args);
  } catch {
    return [];
  }
}

async function listValues(
  connection: Connection,
  kind: string,
  [first = '']: readonly string[],
): Promise<Candidate[]> {
  const { client } = connection;
  const params = ofProject(connection);
  switch (kind) {
    case 'service':
      return named(
        (await listServices(connection)).map(({ service_id: id, name, status }) => ({
          id,
          name,
          about: status,
        })),
      );
    case 'deleted-service': {
      const deleted = await answered(
        client.GET('/projects/{project_id}/deletedServices', { params }),
      );
      return named(
        deleted.map(({ service_id: id, name, deleted: at }) => ({ id, name, about: at })),
      );
    }
    case 'set': {
      const of = await findPath(connection, first);
      const sets = await answered(
        client.GET('/projects/{project_id}/services/{service_id}/replicaSets', of),
      );
      return named(sets.map(({ id, name, status }) => ({ id, name, about: status })));
    }
    case 'vpc': {
      const vpcs = await answered(client.GET('/projects/{project_id}/vpcs', { params }));
      return named(vpcs.map(({ id, name, cidr }) => ({ id, name, about: cidr })));
    }
    case 'peering': {
      const { id } = await findVpc(connection, first);
      const of = { params: pathOfVpc(connection, id) };
      const peerings = await answered(
        client.GET('/projects/{project_id}/vpcs/{vpc_id}/peerings', of),
      );
      return peerings.map((peering) => ({ value: peering.id, about: peering.status }));
    }
    case 'operation': {
      const operations = await answered(
        client.GET('/projects/{project_id}/operations', {
          params: { ...params, query: { limit: '50' } },
        }),
      );
      return operations.map(({ id, kind: what, status }) => ({
        value: id,
        about: `${what} ${status}`,
      }));
    }
    case 'webhook': {
      const webhooks = await answered(client.GET('/projects/{project_id}/webhooks', { params }));
      return webhooks.map(({ id, url }) => ({ value: id, about: url }));
    }
    case 'key': {
      const keys = await answered(client.GET('/projects/{project_id}/keys', { params }));
      return named(keys.map(({ public_key: id, name, role }) => ({ id, name, about: role })));
    }
    case 'project': {
      const projects = await answered(client.GET('/projects'));
      return named(projects.map(({ id, name }) => ({ id, name, about: id })));
    }
    case 'region': {
      const regions = await answered(client.GET('/projects/{project_id}/regions', { params }));
      return regions.map(({ code, engine }) => ({ value: code, about: engine }));
    }
    case 'series': {
      const of = await findPath(connection, first);
      const series = await answered(
        client.GET('/projects/{project_id}/services/{service_id}/metrics/available-series', of),
      );
      return series.map((value) => ({ value, about: '' }));
    }
    default:
      return [];
  }
}

/** By their names; those that share one, by their ids. */
function named(things: readonly { id: string; name: string; about: string }[]): Candidate[] {
  return things.map(({ id, name, about }) => {
    const isAlone = things.filter((other) => other.name === name).length === 1;
    return isAlone ? { value: name, about } : { value: id, about: `${name}, ${about}` };
  });
}

/** Each calls the program by the word that was typed, so that `./howdah` in a clone completes, too. */
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
