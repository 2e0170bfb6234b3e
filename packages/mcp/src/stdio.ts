import { createClient, type ClientOptions } from '@howdah/client';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { openCloud } from './cloud.ts';
import { createMcpServer } from './server.ts';

/** Serves the parent process, until standard input ends. */
export function serveOverStdio(options: ClientOptions): void {
  const cloud = openCloud(createClient(options));
  serveStdio(() => createMcpServer(cloud));
}
