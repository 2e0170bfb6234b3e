import type { Command } from 'commander';
import { verb } from '../command.ts';
import { credentials } from '../connection.ts';
import { quoted } from '@howdah/contract/shell';
import { say } from '../output.ts';

export function addEnv(program: Command): void {
  verb(program, 'env', {
    does: 'Print the address of the API, the project and the key as shell variables, which clients and other commands read.',
    example: 'eval "$(howdah env)"',
  }).action(async () => {
    const { apiUrl, projectId, key } = await credentials();
    // Not HOWDAH_…: these would be settings of the next start.
    const variables = {
      HD_API: apiUrl,
      HD_PROJECT: `${apiUrl}/projects/${projectId}`,
      HD_KEY: key,
    };
    for (const [name, value] of Object.entries(variables)) say(`export ${name}=${quoted(value)}`);
  });
}
