/**
 * The commands. Most are a thin layer over the typed client; up, down, status, doctor, audit, store
 * and …-control work on this machine.
 */
import { Command, Option } from 'commander';
import { VERSION } from '@howdah/contract/version';
import { EXIT_CODES, EXIT_MEANINGS, type Exit } from './exit.ts';
import { TIME_FORMS } from './moment.ts';

type Declare = (program: Command) => void;

/**
 * The commands, by the title above them in the help. Most modules declare one command, some a few.
 * A module is loaded when one of its commands is called: declaring all of them takes as long as
 * the start of Node.
 */
const MODULES: Readonly<Record<string, Readonly<Record<string, () => Promise<Declare>>>>> = {
  'This machine:': {
    up: async () => (await import('./commands/up.ts')).addUp,
    down: async () => (await import('./commands/machine.ts')).addDown,
    upgrade: async () => (await import('./commands/upgrade.ts')).addUpgrade,
    status: async () => (await import('./commands/machine.ts')).addStatus,
    doctor: async () => (await import('./commands/machine.ts')).addDoctor,
    audit: async () => (await import('./commands/machine.ts')).addAudit,
    adopt: async () => (await import('./commands/machine.ts')).addAdopt,
    store: async () => (await import('./commands/store.ts')).addStore,
    'backup-control restore-control metadata-database': async () =>
      (await import('./commands/machine.ts')).addControl,
    repo: async () => (await import('./commands/repo.ts')).addRepo,
    recover: async () => (await import('./commands/machine.ts')).addRecover,
    gateway: async () => (await import('./commands/gateway.ts')).addGateway,
  },
  'Databases:': {
    service: async () => (await import('./commands/service.ts')).addService,
    checkout: async () => (await import('./commands/checkout.ts')).addCheckout,
    lease: async () => (await import('./commands/lease.ts')).addLease,
    'replica-set': async () => (await import('./commands/replica-set.ts')).addReplicaSet,
    backup: async () => (await import('./commands/backup.ts')).addBackup,
    extension: async () => (await import('./commands/extension.ts')).addExtension,
    psql: async () => (await import('./commands/psql.ts')).addPsql,
    query: async () => (await import('./commands/psql.ts')).addQuery,
    url: async () => (await import('./commands/psql.ts')).addUrl,
    import: async () => (await import('./commands/import.ts')).addImport,
    export: async () => (await import('./commands/export.ts')).addExport,
    logs: async () => (await import('./commands/logs.ts')).addLogs,
    metrics: async () => (await import('./commands/metrics.ts')).addMetrics,
    usage: async () => (await import('./commands/usage.ts')).addUsage,
    region: async () => (await import('./commands/region.ts')).addRegion,
    simulation: async () => (await import('./commands/simulation.ts')).addSimulation,
  },
  'Networks:': {
    vpc: async () => (await import('./commands/vpc.ts')).addVpc,
    peering: async () => (await import('./commands/peering.ts')).addPeering,
    'allow-list': async () => (await import('./commands/allow-list.ts')).addAllowList,
  },
  'What happens:': {
    operation: async () => (await import('./commands/operation.ts')).addOperation,
    events: async () => (await import('./commands/events.ts')).addEvents,
    webhook: async () => (await import('./commands/webhook.ts')).addWebhook,
    alert: async () => (await import('./commands/alert.ts')).addAlert,
    exporter: async () => (await import('./commands/exporter.ts')).addExporter,
    'audit-log': async () => (await import('./commands/audit-log.ts')).addAuditLog,
  },
  'Access:': {
    project: async () => (await import('./commands/project.ts')).addProject,
    key: async () => (await import('./commands/key.ts')).addKey,
    'auth feedback analytics': async () => (await import('./commands/auth.ts')).addAuth,
    console: async () => (await import('./commands/auth.ts')).addConsole,
    env: async () => (await import('./commands/auth.ts')).addEnv,
    mcp: async () => (await import('./commands/mcp.ts')).addMcp,
  },
  'Shells:': {
    'completion __complete': async () => (await import('./commands/completion.ts')).addCompletion,
  },
};

/** Commands that show other commands need all of them. */
const SHOWS_COMMANDS: readonly string[] = ['completion', '__complete', 'help'];

/**
 * The commands that a command line needs: those of the module of its first word, else all.
 *
 * @param words that follow `howdah`
 */
export async function loadProgram(words: readonly string[]): Promise<Command> {
  const program = new Command('howdah')
    .description('Your own Postgres cloud.')
    .version(VERSION)
    .exitOverride()
    .enablePositionalOptions()
    .showHelpAfterError('(howdah help shows the commands)')
    .addHelpText(
      'after',
      `\nExit codes:\n${exitCodes()}\n\nExample:\n  $ howdah service create --name orders`,
    );
  const [first = ''] = words;
  if (first === '--version' || first === '-V') return program;
  const modules = Object.entries(MODULES).flatMap(([title, rows]) =>
    Object.entries(rows).map(([names, load]) => ({ title, names: names.split(' '), load })),
  );
  const own = SHOWS_COMMANDS.includes(first)
    ? []
    : modules.filter(({ names }) => names.includes(first));
  const needed = own.length > 0 ? own : modules;
  const declared = await Promise.all(
    needed.map(async ({ title, load }) => ({ title, declare: await load() })),
  );
  for (const { title, declare } of declared) declare(program.commandsGroup(title));
  offerEverywhere(program, false);
  return program;
}

/** The options of all commands. They are taken before the command and after it. */
function offerEverywhere(command: Command, isHidden: boolean): void {
  command.addOption(
    new Option(
      '--ca <file>',
      'PEM file of a CA to trust beside the others, for an API with TLS; also HD_CA',
    ).hideHelp(isHidden),
  );
  command.addOption(
    new Option(
      '--time <form>',
      'how tables show times: as a distance from now, or as a date-time; default: relative',
    )
      .choices(TIME_FORMS)
      .hideHelp(isHidden),
  );
  for (const child of command.commands) offerEverywhere(child, true);
}

function exitCodes(): string {
  const exits = Object.keys(EXIT_CODES).filter((name): name is Exit => name in EXIT_CODES);
  return exits.map((exit) => `  ${EXIT_CODES[exit]}  ${EXIT_MEANINGS[exit]}`).join('\n');
}
