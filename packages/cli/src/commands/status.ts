import type { Command } from 'commander';
import { answered, connect, homeDirectory } from '../connection.ts';
import { Failure, say, table } from '../output.ts';
import { loadServer } from '../server.ts';

export function addStatus(program: Command): void {
  program
    .command('status')
    .description('Whether the control plane runs, and the services with their statuses.')
    .action(async () => {
      const server = await loadServer();
      const control = await server.findControl(homeDirectory());
      if (control === null)
        throw new Failure(`The control plane of ${homeDirectory()} is not running; howdah up starts it. Databases go on without it.`);
      say(`The control plane runs: ${control.apiUrl} (process ${control.pid})`);
      const connection = await connect();
      const services = await answered(
        connection,
        connection.client.GET('/projects/{project_id}/services', { params: { path: { project_id: connection.projectId } } }),
      );
      if (services.length === 0) say('No services yet: howdah service create --name first');
      else
        table(
          ['ID', 'NAME', 'TYPE', 'STATUS', 'ENDPOINT'],
          services.map((service) => [
            service.service_id,
            service.name,
            service.service_type,
            service.status,
            `${service.endpoint.host}:${service.endpoint.port}`,
          ]),
        );
    });
}
