/**
 * All commands. Most are a thin layer over the typed client; up, down, status, doctor, audit, store
 * and …-control work on this machine.
 */
import { Command, Option } from 'commander';
import {
  addAdopt,
  addAudit,
  addDoctor,
  addDown,
  addStatus,
  addControl,
  addRecover,
} from './commands/machine.ts';
import { addAllowList } from './commands/allow-list.ts';
import { addAuditLog } from './commands/audit-log.ts';
import { addAuth, addConsole, addEnv } from './commands/auth.ts';
import { addBackup } from './commands/backup.ts';
import { addCompletion } from './commands/completion.ts';
import { addExtension } from './commands/extension.ts';
import { addEvents } from './commands/events.ts';
import { addExport } from './commands/export.ts';
import { addGateway } from './commands/gateway.ts';
import { addImport } from './commands/import.ts';
import { addExporter } from './commands/exporter.ts';
import { addKey } from './commands/key.ts';
import { addLogs } from './commands/logs.ts';
import { addMcp } from './commands/mcp.ts';
import { addMetrics } from './commands/metrics.ts';
import { addOperation } from './commands/operation.ts';
import { addPeering } from './commands/peering.ts';
import { addProject } from './commands/project.ts';
import { addPsql, addUrl, addQuery } from './commands/psql.ts';
import { addSimulation } from './commands/simulation.ts';
import { addRegion } from './commands/region.ts';
import { addRepo } from './commands/repo.ts';
import { addReplicaSet } from './commands/replica-set.ts';
import { addService } from './commands/service.ts';
import { addStore } from './commands/store.ts';
import { addUp } from './commands/up.ts';
import { addVpc } from './commands/vpc.ts';
import { addWebhook } from './commands/webhook.ts';
import { EXIT_CODES, EXIT_MEANINGS, type Exit } from './exit.ts';

const GROUPS: readonly [title: string, add: readonly ((program: Command) => void)[]][] = [
  [
    'This machine:',
    [
      addUp,
      addDown,
      addStatus,
      addDoctor,
      addAudit,
      addAdopt,
      addStore,
      addControl,
      addRepo,
      addRecover,
      addGateway,
    ],
  ],
  [
    'Databases:',
    [
      addService,
      addReplicaSet,
      addBackup,
      addExtension,
      addPsql,
      addQuery,
      addUrl,
      addImport,
      addExport,
      addLogs,
      addMetrics,
      addRegion,
      addSimulation,
    ],
  ],
  ['Networks:', [addVpc, addPeering, addAllowList]],
  ['What happens:', [addOperation, addEvents, addWebhook, addExporter, addAuditLog]],
  ['Access:', [addProject, addKey, addAuth, addConsole, addEnv, addMcp]],
  ['Shells:', [addCompletion]],
];

export function createProgram(): Command {
  const program = new Command('howdah')
    .description('Your own Postgres cloud.')
    .version('0.1.0')
    .exitOverride()
    .enablePositionalOptions()
    .showHelpAfterError('(howdah help shows the commands)')
    .addHelpText(
      'after',
      `\nExit codes:\n${exitCodes()}\n\nExample:\n  $ howdah service create --name orders`,
    );
  for (const [title, adds] of GROUPS) {
    program.commandsGroup(title);
    for (const add of adds) add(program);
  }
  offerCa(program, false);
  return program;
}

/** Before the command and after it. */
function offerCa(command: Command, isHidden: boolean): void {
  command.addOption(
    new Option(
      '--ca <file>',
      'PEM file of a CA to trust beside the others, for an API with TLS; also HD_CA',
    ).hideHelp(isHidden),
  );
  for (const child of command.commands) offerCa(child, true);
}

function exitCodes(): string {
  const exits = Object.keys(EXIT_CODES).filter((name): name is Exit => name in EXIT_CODES);
  return exits.map((exit) => `  ${EXIT_CODES[exit]}  ${EXIT_MEANINGS[exit]}`).join('\n');
}
