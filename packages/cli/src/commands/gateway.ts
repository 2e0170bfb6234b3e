import { once } from 'node:events';
import type { Command } from 'commander';
import { countOf, verb } from '../command.ts';
import { Failure } from '../exit.ts';
import { loadServer } from '../server.ts';

type Options = {
  listen: string;
  port: string;
  healthPort: string;
  sessions: string;
  handshakes: string;
  grace: string;
  dns?: readonly string[];
  clusterDomain?: string;
};

const MAX_PORT = 65_535;

export function addGateway(program: Command): void {
  verb(program, 'gateway', {
    does: 'Run the TLS gateway of regions with a domain, in their cluster (docs/kubernetes.md).',
    example: 'howdah gateway --sessions 4000',
  })
    .option('--listen <address>', 'the address for clients', '0.0.0.0')
    .option('--port <port>', 'the port for clients', '5432')
    .option('--health-port <port>', 'the port of /health and /metrics', '9187')
    .option('--sessions <number>', 'the most sessions; a quarter of them for a project', '4000')
    .option('--handshakes <number>', 'the most clients without a session', '2000')
    .option('--grace <seconds>', 'for sessions, after SIGTERM', '300')
    .option('--dns <address...>', 'DNS servers; default: those of the machine')
    .option('--cluster-domain <domain>', 'default: that of the search path of the machine')
    .action(async (options: Options) => {
      const { startTlsGateway, openOutputLog } = await loadServer();
      const port = portOf('--port', options.port);
      const healthPort = portOf('--health-port', options.healthPort);
      const sessions = countOf('--sessions', options.sessions);
      const handshakes = countOf('--handshakes', options.handshakes);
      const graceMs = countOf('--grace', options.grace) * 1000;
      const gateway = await startTlsGateway({
        host: options.listen,
        port,
        healthPort,
        limits: { sessions, handshakes },
        graceMs,
        dns: options.dns ?? null,
        clusterDomain: options.clusterDomain ?? null,
        log: openOutputLog(),
      }).catch((error: unknown) => {
        const reason = error instanceof Error ? error.message : String(error);
        throw new Failure(`the gateway does not start: ${reason}`);
      });
      await Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
      await gateway.close();
    });
}

function portOf(flag: string, text: string): number {
  const port = countOf(flag, text);
  if (port > MAX_PORT) throw new Failure(`${flag}: found ${text}; allowed: 0 to 65535`, 'usage');
  return port;
}
