import type { Command } from 'commander';
import pc from 'picocolors';
import { answered, connect } from '../connection.ts';
import { duration, say } from '../output.ts';
import { findService } from './service.ts';

/** What happened to a service: `howdah service logs` and `howdah service operations`. */
export function addHistory(service: Command): void {
  service
    .command('logs')
    .description('Print the newest 500 log lines of a service, the oldest of them first.')
    .argument('<service>', 'id or name')
    .option('--search <text>', 'only lines that contain it, whatever the case')
    .option('--severity <name>', 'only lines of this severity: LOG, WARNING, ERROR, FATAL, …')
    .action(async (name: string, { search, severity }: { search?: string; severity?: string }) => {
      const connection = await connect();
      const { service_id } = await findService(connection, name);
      const query = { ...(search === undefined ? {} : { search }), ...(severity === undefined ? {} : { severities: severity }) };
      const { logs } = await answered(
        connection,
        connection.client.GET('/projects/{project_id}/services/{service_id}/logs', {
          params: { path: { project_id: connection.projectId, service_id }, query },
        }),
      );
      for (const line of logs.toReversed()) say(line);
    });

  service
    .command('operations')
    .description('Print what was done to a service, newest first, with the steps.')
    .argument('<service>', 'id or name; the id of a deleted one as well')
    .action(async (name: string) => {
      const connection = await connect();
      const list = async (serviceId: string) =>
        answered(
          connection,
          connection.client.GET('/projects/{project_id}/operations', {
            params: { path: { project_id: connection.projectId }, query: { service_id: serviceId } },
          }),
        );
      const ofId = await list(name);
      const operations = ofId.length > 0 ? ofId : await list((await findService(connection, name)).service_id);
      for (const { created, kind, status, requested_by, error, steps } of operations) {
        say(`${created} ${pc.bold(kind)} ${status}, asked for by ${requested_by}${error === undefined ? '' : `: ${error}`}`);
        for (const step of steps) {
          const took = step.finished === null ? 'under way' : duration(Date.parse(step.finished) - Date.parse(step.started));
          say(`  ${step.name} ${pc.dim(`${took}${step.detail === null ? '' : `, ${step.detail}`}`)}`);
        }
      }
    });
}
