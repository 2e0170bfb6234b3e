/** `howdah service move` */
import type { Command } from 'commander';
import { verb, type Confirming, type Waiting } from '../command.ts';
import { changeFound, PROTECTED_CHANGES } from './service-shared.ts';

type Options = Waiting & Confirming & { region: string };

export function addMove(service: Command): void {
  verb(service, 'move <service>', {
    does:
      'Move a service from a region on a machine to one on Kubernetes, or back. It runs while it ' +
      'is copied, and has another endpoint then. With --dry-run: everything that is in the way.',
    example: 'howdah service move orders --region kube',
    takes: PROTECTED_CHANGES,
  })
    .requiredOption('--region <code>', 'the other region; howdah region list shows them')
    .action(async (wanted: string, { region, ...options }: Options) =>
      changeFound(wanted, 'move', options, (client, params) =>
        client.POST('/projects/{project_id}/services/{service_id}/move', {
          params,
          body: { region_code: region },
        }),
      ),
    );
}
