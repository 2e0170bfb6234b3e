/** The answer of the API about the backups of a service in the repository of a test. */
import type { Schemas } from '@howdah/client';
import type { Service } from '../test/harness-caller.ts';
import { cloud } from '../test/repository-cloud.ts';

type OffMachine = Schemas['Backups']['off_machine'][number];

export async function offMachineOf(service: Service): Promise<OffMachine | undefined> {
  const { data } = await cloud.client.GET(
    '/projects/{project_id}/services/{service_id}/backupStatus',
    { params: { path: { project_id: cloud.projectId, service_id: service.service_id } } },
  );
  return data?.off_machine[0];
}
