/**
 * The operations that are crashed in: each makes what it needs, asks, and says how it ended. See
 * crash.ts.
 */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { adoption, retentionScenes } from './crash-backup-scenes.ts';
import { firstStart, playable, type Playable, type Testbed } from './crash.ts';
import { type Installation } from './harness.ts';
import { haScenes, setScenes, vpcScenes } from './crash-topology-scenes.ts';
import { createLayout, findPgBackRest, findProgram } from './probe.ts';
import {
  accessOf,
  age,
  endings,
  insert,
  isGone,
  latestOf,
  moment,
  namesIn,
  nothingGoesOn,
  power,
  type ServiceAccess,
  withClient,
} from './service-access.ts';
import { change, creation } from './crash-playables.ts';
import { resetScenes } from './crash-reset-scenes.ts';
import { newerMajor, upgradeScenes, withOlderPostgresql } from './crash-upgrade-scenes.ts';
import { until } from './until.ts';

/** Scenes that share an installation, and how it is set up. */
export type Family = {
  name: string;
  settings: Record<string, string> | (() => Promise<Record<string, string>>);
  /** Whether it can be played on this machine: without HAProxy there are no replicas. */
  playable: boolean;
  make: (testbed: Testbed) => Promise<Playable[]>;
};

/** All that there is to crash in. */
export async function crashFamilies(): Promise<Family[]> {
  const gateways = (await findProgram('haproxy')) !== null;
  return [
    {
      name: 'creates',
      settings: { HOWDAH_RESTORE_HOURS: '0' },
      playable: true,
      make: createScenes,
    },
    { name: 'power', settings: {}, playable: true, make: powerScenes },
    { name: 'changes', settings: {}, playable: true, make: changeScenes },
    { name: 'vpcs', settings: {}, playable: true, make: vpcScenes },
    { name: 'sets', settings: {}, playable: gateways, make: setScenes },
    { name: 'replicas', settings: {}, playable: gateways, make: haScenes },
    { name: 'resets', settings: {}, playable: true, make: resetScenes },
    {
      name: 'upgrades',
      settings: withOlderPostgresql,
      playable: (await newerMajor()) !== null,
      make: upgradeScenes,
    },
    {
      name: 'retention',
      settings: {},
      playable: (await findPgBackRest()) !== null,
      make: retentionScenes,
    },
  ];
}

/** Scenes that leave nothing behind: deleted services are gone at once (HOWDAH_RESTORE_HOURS=0). */
async function createScenes(testbed: Testbed): Promise<Playable[]> {
  const { cloud } = testbed;
  const running = await cloud.create({ name: 'running parent', service_type: 'POSTGRES' });
  await insert(cloud, running, 'one');
  const afterOne = await moment(cloud, running);
  await insert(cloud, running, 'two');
  const paused = await cloud.create({ name: 'paused parent', service_type: 'POSTGRES' });
  await insert(cloud, paused, 'asleep');
  await power(cloud, paused, 'stop');
  const lastWord = await latestOf(cloud, paused);
  return [
    firstStart(),
    creation(cloud, 'create', ['new'], null, () => ({})),
    creation(cloud, 'fork of now, running parent', ['new', 'parent'], running, () => ({
      fork_strategy: 'NOW',
    })),
    creation(cloud, 'fork of now, paused parent', ['new'], paused, () => ({
      fork_strategy: 'NOW',
    })),
    creation(cloud, 'fork of the last snapshot', ['new', 'parent'], running, () => ({
      fork_strategy: 'LAST_SNAPSHOT',
    })),
    creation(cloud, 'fork at a point in time', ['new', 'parent'], running, () => ({
      fork_strategy: 'PITR',
      target_time: afterOne,
    })),
    creation(cloud, 'fork at a point in time, paused parent', ['new'], paused, () => ({
      fork_strategy: 'PITR',
      target_time: lastWord,
    })),
    removal(cloud, 'delete for good', ''),
    adoption(cloud),
    await keeping(testbed),
  ];
}

/** Scenes on one service that comes back each time (HOWDAH_RESTORE_HOURS is long). */
async function powerScenes({ cloud }: Testbed): Promise<Playable[]> {
  const service = await cloud.create({ name: 'comes back', service_type: 'POSTGRES' });
  await insert(cloud, service, 'kept');
  const on = () => power(cloud, service, 'start');
  const off = () => power(cloud, service, 'stop');
  const remove = async () => {
    await cloud.request('DELETE', `/services/${service.service_id}`);
    await until('the service is deleted', () => isGone(cloud, service));
  };
  const restore = async () => {
    await cloud.request('POST', `/services/${service.service_id}/restore`);
    await cloud.until(service.service_id, 'READY');
  };
  let cpu = 500;
  return [
    change(cloud, service, 'stop', {
      before: on,
      ask: ['POST', '/stop'],
      becomes: 'PAUSED',
      after: on,
    }),
    change(cloud, service, 'start', {
      before: off,
      ask: ['POST', '/start'],
      becomes: 'READY',
      after: on,
    }),
    change(cloud, service, 'restart', {
      before: on,
      ask: ['POST', '/restart'],
      becomes: 'READY',
      after: on,
    }),
    change(cloud, service, 'resize', {
      before: async () => void (cpu = 1500 - cpu),
      ask: ['POST', '/resize', () => ({ cpu_millis: String(cpu) })],
      becomes: 'READY',
      after: on,
    }),
    change(cloud, service, 'delete', {
      before: on,
      ask: ['DELETE', ''],
      becomes: null,
      after: restore,
    }),
    change(cloud, service, 'restore', {
      before: remove,
      ask: ['POST', '/restore'],
      becomes: 'READY',
      after: on,
    }),
    removal(cloud, 'purge', '?purge=true'),
  ];
}

/** Scenes of what is changed of a service that goes on running. */
async function changeScenes({ cloud }: Testbed): Promise<Playable[]> {
  const service: ServiceAccess = await cloud.create({ name: 'changed', service_type: 'POSTGRES' });
  const id = service.service_id;
  await insert(cloud, service, 'kept');
  let count = 0;
  const now = () => cloud.get(id);
  const pooler = (action: 'enablePooler' | 'disablePooler') => async () => {
    await cloud.request('POST', `/services/${id}/${action}`);
    await until(`${action} has ended`, () => nothingGoesOn(cloud));
  };
  const nothing = async () => undefined;
  const next = async () => void (count += 1);
  const poolers = (await findProgram('pgbouncer')) !== null;
  return [
    change(cloud, service, 'new password', {
      before: async () => {
        await next();
        service.initial_password = `password ${count}`;
      },
      ask: ['POST', '/updatePassword', () => ({ password: service.initial_password })],
      becomes: 'READY',
      after: nothing,
    }),
    change(cloud, service, 'rename', {
      before: next,
      ask: ['POST', '/rename', () => ({ name: `name ${count}` })],
      becomes: 'READY',
      shows: async () => (await now()).name === `name ${count}`,
      after: nothing,
    }),
    change(cloud, service, 'environment', {
      before: () => cloud.request('POST', `/services/${id}/setEnvironment`, { environment: 'DEV' }),
      ask: ['POST', '/setEnvironment', () => ({ environment: 'PROD' })],
      becomes: 'READY',
      shows: async () => (await now()).metadata.environment,
      after: nothing,
    }),
    change(cloud, service, 'enable extension', {
      before: async () => {
        await cloud.request('DELETE', `/services/${id}/extensions/pg_prewarm`);
        await until('the extension is disabled', () => nothingGoesOn(cloud));
      },
      ask: ['POST', '/extensions', () => ({ name: 'pg_prewarm' })],
      becomes: 'READY',
      after: nothing,
    }),
    change(cloud, service, 'verify backup', {
      before: nothing,
      ask: ['POST', '/backups/verify'],
      becomes: 'READY',
      shows: () => readdir(join(cloud.home, 'data', 'scratch')),
      after: nothing,
    }),
    ...(poolers
      ? [
          change(cloud, service, 'enable pooler', {
            before: pooler('disablePooler'),
            ask: ['POST', '/enablePooler'],
            becomes: 'READY',
            shows: async () => (await now()).connection_pooler !== undefined,
            after: nothing,
          }),
          change(cloud, service, 'disable pooler', {
            before: pooler('enablePooler'),
            ask: ['POST', '/disablePooler'],
            becomes: 'READY',
            shows: async () => (await now()).connection_pooler !== undefined,
            after: nothing,
          }),
        ]
      : []),
  ];
}

function removal(cloud: Installation, name: string, query: string): Playable {
  return playable<ServiceAccess>({
    name,
    servers: ['new'],
    prepare: () => cloud.create({ name: 'to be deleted', service_type: 'POSTGRES' }),
    roles: ({ service_id }) => ({ [service_id]: 'new' }),
    act: async ({ service_id }) => {
      const { status } = await cloud.request('DELETE', `/services/${service_id}${query}`);
      if (status >= 500) throw new Error(`${name}: ${status}`);
    },
    done: async (service) => (await isGone(cloud, service)) && (await nothingGoesOn(cloud)),
    outcome: async (service) => ({
      directory: (await readdir(join(cloud.home, 'data', 'services'))).includes(service.service_id),
      operations: await endings(cloud, service),
    }),
    clear: async () => undefined,
  });
}

/**
 * A start of the control plane sees to backups: it takes the snapshot that is due, and prunes what
 * the window needs no more.
 */
async function keeping({ cloud }: Testbed): Promise<Playable> {
  const service = await cloud.create({ name: 'kept', service_type: 'POSTGRES' });
  const { snapshots } = createLayout(join(cloud.home, 'data')).service(service.service_id);
  const whole = async () =>
    (await readdir(snapshots)).filter((name) => !name.endsWith('.new')).toSorted();
  let written = 0;
  return playable<{ before: string[] }>({
    name: 'snapshot and prune',
    servers: ['kept'],
    prepare: async () => {
      await insert(cloud, service, `snapshot ${++written}`);
      // A row alone is so little that no snapshot is due for it.
      await withClient(cloud, service, (client) =>
        client.query("select pg_logical_emit_message(true, 'filler', repeat('x', 20000))"),
      );
      // Taken long ago by what is noted of them: the newest is now what the window begins with, all
      // before it are no more needed.
      for (const name of await whole()) await age(join(snapshots, name, 'snapshot.json'));
      return { before: await whole() };
    },
    roles: () => ({ [service.service_id]: 'kept' }),
    act: async () => {
      await cloud.stop('SIGTERM');
      await cloud.up();
    },
    done: async ({ before }) => {
      const now = await whole();
      return now.length === 2 && !before.includes(now[1] ?? '') && (await nothingGoesOn(cloud));
    },
    outcome: async ({ before }) => {
      const [oldest, newest] = await whole();
      const child = accessOf(
        (
          await cloud.request('POST', `/services/${service.service_id}/forkService`, {
            fork_strategy: 'LAST_SNAPSHOT',
          })
        ).body,
      );
      await cloud.until(child.service_id, 'READY');
      const names = await namesIn(cloud, child);
      await cloud.request('DELETE', `/services/${child.service_id}`);
      await until('the fork is deleted', () => isGone(cloud, child));
      const { body } = await cloud.request('GET', `/services/${service.service_id}/backupStatus`);
      return {
        oldestWasNewest: oldest === before.at(-1),
        newestIsNew: newest !== undefined && !before.includes(newest),
        lostRows: written - names.length,
        problem:
          typeof body === 'object' && body !== null && 'problem' in body ? body.problem : body,
        operations: await endings(cloud, service),
      };
    },
    clear: async () => undefined,
  });
}
