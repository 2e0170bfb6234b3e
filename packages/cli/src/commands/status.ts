import type { Command } from 'commander';
import { placeOf } from '@howdah/contract/connect';
import { endpointOf } from '../address.ts';
import { verb } from '../command.ts';
import { connectHere, homeDirectory } from '../connection.ts';
import { Failure } from '../exit.ts';
import { listServices } from '../find.ts';
import { say, table } from '../output.ts';
import { noteProblems } from '../problems.ts';
import { loadServer } from '../server.ts';

export function addStatus(program: Command): void {
  const does = 'Show whether the control plane runs, and the services with their statuses.';
  verb(program, 'status', { does, example: 'howdah status' }).action(async () => {
    const server = await loadServer();
    const control = await server.findControl(homeDirectory());
    if (control === null)
      throw new Failure(
        `The control plane of ${homeDirectory()} is not running; howdah up starts it. The databases keep running without it.`,
        'noConnection',
      );
    say(`The control plane runs: ${control.apiUrl} (process ${control.pid})`);
    const connection = await connectHere();
    const services = await listServices(connection);
    if (services.length === 0) say('No services yet: howdah service create --name first');
    else {
      const hasRegions = new Set(services.map(({ region_code: region }) => region)).size > 1;
      table(
        ['ID', 'NAME', 'TYPE', ...(hasRegions ? ['REGION'] : []), 'STATUS', 'ENDPOINT'],
        services.map((service) => [
          service.service_id,
          service.name,
          service.service_type,
          ...(hasRegions ? [service.region_code] : []),
          service.status,
          placeOf(endpointOf(service)),
        ]),
      );
    }
    await noteProblems(connection, services);
  });
}
