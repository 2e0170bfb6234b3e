import type { ClientOptions } from '@howdah/client';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { openCloud, type Cloud } from './cloud.ts';
import { createPasswords } from './passwords.ts';
import { addPrompts } from './prompts.ts';
import { addSchemaResource } from './resources.ts';
import { addTigerNames } from './tiger-names.ts';
import { addBackupTools } from './tools/backups.ts';
import { addConfigureTools } from './tools/configure.ts';
import { addCreateTools } from './tools/create-services.ts';
import { addDatabaseTools } from './tools/database.ts';
import { addDeleteTools, addPurgeTool } from './tools/delete-services.ts';
import { addDiffTool } from './tools/differences.ts';
import { addExtensionTools } from './tools/extensions.ts';
import { addLeaseTools } from './tools/leases.ts';
import { addNetworkTools } from './tools/network.ts';
import { addObserveTools } from './tools/observe.ts';
import { addOperationTools } from './tools/operations.ts';
import { addProjectTools } from './tools/project.ts';
import { addRunTools } from './tools/run-services.ts';
import { addServiceTools } from './tools/services.ts';
import { addWriteTools } from './tools/writes.ts';
import { ToolServer } from './tool.ts';

const INSTRUCTIONS = `Howdah is a PostgreSQL cloud. A service is a PostgreSQL server \
with a database tsdb and a user tsdbadmin.
Begin with whoami (what this key may do) and list_services. Look before you change: db_schema, \
then db_query (reads only), get_logs, get_metrics.
To try something that changes data, never use the service itself: fork_service quickly makes a \
copy that you may break. execute and apply_migration write on such a fork, diff shows what is \
different from its parent, delete_service removes it. take_lease makes copies for tests, which \
end by themselves.
Tools that end sessions or delete data require confirm: the name of the service. Services tagged \
PROD are in use: ask the user first. Every change of a service accepts dry_run.`;

/** How a server shows its tools. */
export type ServerOptions = {
  /** Whether tools have the names of Tiger Cloud's server, too. */
  hasTigerNames: boolean;
};

/** Creates a server with all tools, for one connection or request. */
export function createMcpServer(cloud: Cloud, { hasTigerNames }: ServerOptions): ToolServer {
  const server = new ToolServer(
    { name: 'howdah', version: '0.1.0' },
    { instructions: INSTRUCTIONS },
  );
  for (const add of [
    addProjectTools,
    addServiceTools,
    addCreateTools,
    addLeaseTools,
    addRunTools,
    addConfigureTools,
    addNetworkTools,
    addDeleteTools,
    addPurgeTool,
    addBackupTools,
    addExtensionTools,
    addOperationTools,
    addObserveTools,
    addDatabaseTools,
    addDiffTool,
    addWriteTools,
    addSchemaResource,
  ])
    add(server, cloud);
  addPrompts(server);
  if (hasTigerNames) addTigerNames(server);
  return server;
}

/** Serves the parent process, until standard input ends. */
export function serveOverStdio(client: ClientOptions, options: ServerOptions): void {
  const cloud = openCloud(client, createPasswords());
  serveStdio(() => createMcpServer(cloud, options));
}
