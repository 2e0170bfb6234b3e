import { McpServer } from '@modelcontextprotocol/server';
import { createClient, type ClientOptions } from '@howdah/client';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { type Cloud, openCloud } from './cloud.ts';
import { addBackupTools } from './tools/backups.ts';
import { addCreateTools } from './tools/create-services.ts';
import { addDatabaseTools, addExtensionTools } from './tools/database.ts';
import { addDeleteTools, addPurgeTool } from './tools/delete-services.ts';
import { addObserveTools } from './tools/observe.ts';
import { addOperationTools } from './tools/operations.ts';
import { addProjectTools } from './tools/project.ts';
import { addRunTools } from './tools/run-services.ts';
import { addServiceTools } from './tools/services.ts';
import { noteWarning } from './tool.ts';

const INSTRUCTIONS = `Howdah is a PostgreSQL cloud. A service is a PostgreSQL server with a database tsdb and a user tsdbadmin.
Begin with whoami (what this key may do) and list_services. Look before you change: db_schema, then db_query (reads only), get_logs, get_metrics.
To try something that changes data, never use the service itself: fork_service quickly makes a copy that you may break; delete_service removes it.
Tools that end sessions or delete data require confirm: the name of the service. Services tagged PROD are in use: ask the user first. Every change accepts dry_run.`;

/** Creates a server with all tools, for one connection or request. */
export function createMcpServer(cloud: Cloud): McpServer {
  const server = new McpServer(
    { name: 'howdah', version: '0.1.0' },
    { instructions: INSTRUCTIONS },
  );
  for (const add of [
    addProjectTools,
    addServiceTools,
    addCreateTools,
    addRunTools,
    addDeleteTools,
    addPurgeTool,
    addBackupTools,
    addExtensionTools,
    addOperationTools,
    addObserveTools,
    addDatabaseTools,
  ])
    add(server, cloud);
  return server;
}

/** Serves the parent process, until standard input ends. */
export function serveOverStdio(options: ClientOptions): void {
  const cloud = openCloud(createClient({ ...options, onWarning: noteWarning }));
  serveStdio(() => createMcpServer(cloud));
}
