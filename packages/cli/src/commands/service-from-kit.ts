/** `howdah service create-from-kit` */
import { readFile } from 'node:fs/promises';
import { text as readAll } from 'node:stream/consumers';
import type { Schemas } from '@howdah/client';
import type { Command } from 'commander';
import { given, verb, type Repeatable } from '../command.ts';
import { connect } from '../connection.ts';
import { Failure } from '../exit.ts';
import { ofProject } from '../find.ts';
import { momentIfGiven, MOMENTS } from '../moment.ts';
import { makeOnce } from './service-create.ts';
import { CREATES, environmentOf, sizeOf, type Size } from './service-shared.ts';

type Options = Repeatable &
  Size & { name?: string; at?: string; environment?: string; region?: string };

export function addCreateFromKit(service: Command): void {
  verb(service, 'create-from-kit <file> [service]', {
    does:
      'Create a service with the data of one of another installation, from the repository of its ' +
      'recovery kit, which is only read. With --dry-run and no service it lists those that there ' +
      'are. Needs an admin key of the operator project.',
    example: 'howdah service create-from-kit production-kit.json orders --name orders-staging',
    takes: CREATES,
  })
    .option('--name <name>', 'default: the name of the service there')
    .option('--at <time>', `as it was at this time: ${MOMENTS}; default: the newest state`)
    .option('--cpu-millis <number>', 'thousandths of a core, or shared')
    .option('--memory-gbs <number>', 'gigabytes, or shared')
    .option('--storage-gb <number>', 'gigabytes of disk; default: as there')
    .option('--environment <environment>', 'DEV or PROD; default: DEV')
    .option('--region <region>', 'the region; howdah region list shows the regions')
    .action(async (file: string, wanted: string | undefined, options: Options) => {
      const kit = await readKit(file);
      const connection = await connect(options);
      const make = () =>
        connection.client.POST('/projects/{project_id}/services/fromKit', {
          params: ofProject(connection),
          body: {
            kit,
            ...sizeOf(options),
            ...given('service', wanted),
            ...given('name', options.name),
            unique_name: options.name !== undefined,
            ...given('target_time', momentIfGiven('--at', options.at)),
            ...given('region_code', options.region),
            ...given('environment_tag', environmentOf(options.environment)),
          },
        });
      await makeOnce(connection, options.name, options, make);
    });
}

/** The API checks what the kit has. @throws Failure for a file that is none */
async function readKit(file: string): Promise<Schemas['RecoveryKit']> {
  const text = file === '-' ? await readAll(process.stdin) : await readFile(file, 'utf8');
  try {
    const kit: Schemas['RecoveryKit'] = JSON.parse(text);
    if (typeof kit === 'object' && kit !== null) return kit;
  } catch {
    // It is no JSON either.
  }
  throw new Failure(`${file} is no recovery kit: howdah repo kit prints one`, 'usage');
}
