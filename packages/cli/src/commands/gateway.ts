import { once } from 'node:events';
import { messageOf } from '@howdah/contract/thrown';
import type { Command } from 'commander';
import { countOf, verb } from '../command.ts';
import { Failure } from '../exit.ts';
import { loadServer } from '../server.ts';

type Options = {
  listen?: string;
  port: string;
  healthPort: string;
  sessions: string;
  handshakes: string;
  drain: string;
  grace: string;
  dns?: readonly string[];
  clusterDomain?: string;
};

const MAX_PORT = 65_535;
const MAX_PLACES = 100_000;
const DAY_SECONDS = 86_400;

export function addGateway(program: Command): void {
  verb(program, 'gateway', {
    does: 'Run the TLS gateway of regions with a domain, in their cluster (docs/kubernetes.md).',
    example: 'howdah gateway --sessions 4000',
  })
    .option('--listen <address>', 'the address for clients; default: all')
    .option('--port <port>', 'the port for clients', '5432')
    .option('--health-port <port>', 'the port of /health and /metrics', '9187')
    .option('--sessions <number>', 'the most sessions; a quarter of them for a project', '4000')
    .option('--handshakes <number>', 'the most clients without a session', '2000')
    .option('--drain <seconds>', 'until it accepts no more clients, after SIGTERM', '20')
    .option('--grace <seconds>', 'for sessions, after that', '300')
    .option('--dns <address...>', 'DNS servers; default: those of the machine')
    .option('--cluster-domain <domain>', 'default: that of the search path of the machine')
    .action(async (options: Options) => {
      const { startTlsGateway, openOutputLog } = await loadServer();
      const port = numberIn('--port', options.port, 0, MAX_PORT);
      const healthPort = numberIn('--health-port', options.healthPort, 0, MAX_PORT);
      const sessions = numberIn('--sessions', options.sessions, 1, MAX_PLACES);
      const handshakes = numberIn('--handshakes', options.handshakes, 1, MAX_PLACES);
      const drainMs = numberIn('--drain', options.drain, 0, DAY_SECONDS) * 1000;
      const graceMs = numberIn('--grace', options.grace, 0, DAY_SECONDS) * 1000;
      // First: a signal just after its first line ends it as any later one.
      const asked = Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
      const gateway = await startTlsGateway({
        host: options.listen ?? null,
        port,
        healthPort,
        limits: { sessions, handshakes },
        drainMs,
        graceMs,
        dns: options.dns ?? null,
        clusterDomain: options.clusterDomain ?? null,
        log: openOutputLog(),
      }).catch((error: unknown) => {
        const reason = messageOf(error);
        throw new Failure(`the gateway does not start: ${reason}`);
      });
      await asked;
      await gateway.close();
    });
}

function numberIn(flag: string, text: string, least: number, most: number): number {
  const number = countOf(flag, text);
  if (number < least || number > most)
    throw new Failure(`${flag}: found ${text}; allowed: ${least} to ${most}`, 'usage');
  return number;
}
