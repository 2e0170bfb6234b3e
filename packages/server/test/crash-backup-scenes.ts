/** Scenes of a directory that is adopted, and of the retention of backups. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { change } from './crash-playables.ts';
import { playable, type Playable, type Testbed } from './crash.ts';
import type { Installation } from './harness.ts';
import { openMetadata } from './metadata.ts';
import {
  endings,
  insert,
  isGone,
  namesIn,
  nothingGoesOn,
  type ServiceAccess,
} from './service-access.ts';
import { until } from './until.ts';

/** The metadata database becomes one that was backed up before these services were created. */
export async function forget(cloud: Installation, ...ids: string[]): Promise<void> {
  await cloud.stop('SIGKILL');
  const { db, close } = await openMetadata(cloud.home);
  await db.deleteFrom('operations').where('service_id', 'in', ids).execute();
  await db.deleteFrom('services').where('id', 'in', ids).execute();
  await close();
  await cloud.up();
}

/** A directory, with a server that runs, becomes the service that it was. */
export function adoption(cloud: Installation): Playable {
  return playable<ServiceAccess>({
    name: 'adopt',
    servers: ['it'],
    prepare: async () => {
      const service = await cloud.create({ name: 'forgotten', service_type: 'POSTGRES' });
      await insert(cloud, service, 'kept');
      await forget(cloud, service.service_id);
      return service;
    },
    roles: ({ service_id }) => ({ [service_id]: 'it' }),
    act: async ({ service_id: id }) => {
      const directory = join(cloud.home, 'data', 'services', id);
      const { status, body } = await cloud.request('POST', '/services/adopt', { directory });
      // An adoption that was not answered may have ended.
      const isThere = status === 409 && JSON.stringify(body).includes('which exists');
      if (status !== 202 && !isThere) throw new Error(`adopt: ${status} ${JSON.stringify(body)}`);
    },
    done: async ({ service_id }) =>
      (await cloud.get(service_id)).status === 'READY' && (await nothingGoesOn(cloud)),
    outcome: async (service) => {
      const { endpoint, name } = await cloud.get(service.service_id);
      return {
        isItself: endpoint.port === service.endpoint.port && name === service.service_id,
        names: await namesIn(cloud, service),
        operations: await endings(cloud, service),
      };
    },
    clear: async (service) => {
      await cloud.request('DELETE', `/services/${service.service_id}`);
      await until('the service is deleted', () => isGone(cloud, service));
    },
  });
}

/** A service whose backups go to a repository, which keeps them for a time of its own. */
export async function retentionScenes({ cloud }: Testbed): Promise<Playable[]> {
  const path = join(cloud.home, 'offsite');
  await mkdir(path);
  const { code, stderr } = await cloud.cli('repo', 'add', 'offsite', '--path', path);
  if (code !== 0) throw new Error(stderr);
  const service: ServiceAccess = await cloud.create({ name: 'kept', service_type: 'POSTGRES' });
  await insert(cloud, service, 'kept');
  const at = `/services/${service.service_id}/backup-retention`;
  const retention = (days: number | null) =>
    cloud.request('PUT', at, { type: 'TIME', retention_days: days });
  await until('the service has a full backup', async () => {
    const status = await cloud.request('GET', `/services/${service.service_id}/backupStatus`);
    return JSON.stringify(status.body).includes('"type":"full"');
  });
  const shows = async () => (await cloud.request('GET', at)).body;
  const scene = (name: string, before: number | null, asked: number | null): Playable =>
    change(cloud, service, name, {
      before: () => retention(before),
      ask: ['PUT', '/backup-retention', () => ({ type: 'TIME', retention_days: asked })],
      becomes: 'READY',
      shows,
      after: async () => undefined,
    });
  return [scene('set backup retention', null, 30), scene('take backup retention back', 30, null)];
}
