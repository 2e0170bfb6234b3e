import { once } from 'node:events';
import type { Command } from 'commander';
import { accessApi } from '../connection.ts';
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
    .action(async ({ http, port }: { http?: true; port: string }) => {
      const { serveOverHttp, serveOverStdio } = await loadMcp();
      const options = await accessApi();
      if (http === undefined) return serveOverStdio(options);
      const { key: _ours, ...api } = options;
      const { url, close } = await serveOverHttp(api, portOf(port)).catch((error: unknown) => {
        const reason = error instanceof Error ? error.message : String(error);
        throw new Failure(`--port ${port}: ${reason}; take another one`);
      });
      process.stderr.write(
        `MCP server at ${url}; requests carry "Authorization: Bearer <public_key>:<secret_key>". Ctrl-C ends it.\n`,
      );
      await Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
      await close();
    });
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
