import { once } from 'node:events';
import { messageOf } from '@howdah/contract/thrown';
import type { Command } from 'commander';
import { accessApi, accessWithoutKey } from '../connection.ts';
import { verb } from '../command.ts';
import { Failure } from '../exit.ts';

export function addMcp(program: Command): void {
  verb(program, 'mcp', {
    does:
      'Serve Howdah to agents as tools (Model Context Protocol), ' +
      'over standard input and output. docs/mcp.md explains how clients start it.',
    example: 'howdah mcp --http --port 8091',
  })
    .option('--http', 'serve over HTTP on this machine instead; each request carries its API key')
    .option('--port <port>', 'the port with --http', '8091')
    .option('--tiger-names', "list tools under the names of Tiger Cloud's server, too")
    .action(async ({ http, port, tigerNames }: McpOptions) => {
      const { serveOverHttp, serveOverStdio } = await loadMcp();
      const shown = { hasTigerNames: tigerNames === true };
      if (http === undefined) return serveOverStdio(await accessAsAgent(), shown);
      const api = await accessWithoutKey(undefined);
      const { url, close } = await serveOverHttp(api, shown, portOf(port)).catch(
        (error: unknown) => {
          const reason = messageOf(error);
          throw new Failure(`--port ${port}: ${reason}; take another one`);
        },
      );
      process.stderr.write(
        `MCP server at ${url}; ` +
          'requests carry "Authorization: Bearer <public_key>:<secret_key>". Ctrl-C ends it.\n',
      );
      await Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
      await close();
    });
}

type McpOptions = { http?: true; port: string; tigerNames?: true };

/** The API with the key that the agent was given: never the admin key that howdah up wrote. */
async function accessAsAgent() {
  const given = process.env['HD_KEY'];
  if (given !== undefined) return accessApi();
  throw new Failure(
    'HD_KEY: not set, and an agent does not get the admin key of howdah up; make a key for it ' +
      '(howdah key create --name agent --role developer --fork-only), and set HD_KEY to it in ' +
      'the configuration of the client (docs/mcp.md)',
    'usage',
  );
}

/** A separate bundle, like the server. */
async function loadMcp(): Promise<typeof import('@howdah/mcp')> {
  const bundle: string = new URL('../../mcp/dist/mcp.js', import.meta.url).href;
  return import(bundle);
}

function portOf(text: string): number {
  const port = /^[0-9]{1,5}$/.test(text) ? Number(text) : 65_536;
  if (port > 65_535)
    throw new Failure(
      `--port: found ${JSON.stringify(text)}; allowed: 1 to 65535, or 0 for any that is free`,
      'usage',
    );
  return port;
}
