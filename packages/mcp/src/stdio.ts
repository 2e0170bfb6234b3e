import { createClient, type ClientOptions } from '@howdah/client';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { openCloud } from './cloud.ts';
import { createMcpServer } from './server.ts';
import { noteWarning } from './tool.ts';

/** Serves the parent process, until standard input ends. */
export function serveOverStdio(options: ClientOptions): void {
  const cloud = openCloud(createClient({ ...options, onWarning: noteWarning }));
  serveStdio(() => createMcpServer(cloud));
}
