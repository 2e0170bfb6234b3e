/** Upgrades of PostgreSQL that are crashed in. */
import { existsSync } from 'node:fs';
import { mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { change } from './crash-playables.ts';
import type { Playable, Testbed } from './crash.ts';
import { makeHome } from './harness.ts';
import { OLDER_MAJOR, OLDER_PACKAGE, putPostgresql } from './npm-postgresql.ts';
import { insert, nothingGoesOn } from './service-access.ts';
import { until } from './until.ts';

const PACKAGED = '/usr/lib/postgresql';

/** The newest version that can take data over: packages bring pg_dump; null: there is none. */
export async function newerMajor(): Promise<string | null> {
  const majors = (await readdir(PACKAGED).catch(() => [])).filter(
    (major) =>
      Number(major) > Number(OLDER_MAJOR) &&
      ['postgres', 'pg_dump'].every((program) => existsSync(join(PACKAGED, major, 'bin', program))),
  );
  return majors.toSorted((a, b) => Number(a) - Number(b)).at(-1) ?? null;
}

/** The settings of an installation that has an older version too. */
export async function withOlderPostgresql(): Promise<Record<string, string>> {
  const home = await makeHome();
  await mkdir(join(home, 'data', 'postgres'), { recursive: true });
  await putPostgresql(OLDER_PACKAGE, join(home, 'data', 'postgres', 'older'));
  return { HOWDAH_HOME: home };
}

/** Scenes on a service that is upgraded, and brought back, again and again. */
export async function upgradeScenes({ cloud }: Testbed): Promise<Playable[]> {
  const newer = (await newerMajor()) ?? '';
  const service = await cloud.create({
    name: 'upgraded',
    service_type: 'POSTGRES',
    pg_version: OLDER_MAJOR,
  });
  const id = service.service_id;
  await insert(cloud, service, 'kept');
  const now = async () => (await cloud.get(id)).pg_version;
  const become = (major: string) => async () => {
    if ((await now()) === major) return;
    const body = major === newer ? { pg_version: newer } : { undo: true, confirm: 'upgraded' };
    await cloud.request('POST', `/services/${id}/upgrade`, body);
    await until('the upgrade has ended', () => nothingGoesOn(cloud));
  };
  const nothing = async () => undefined;
  return [
    change(cloud, service, 'upgrade', {
      before: become(OLDER_MAJOR),
      ask: ['POST', '/upgrade', () => ({ pg_version: newer })],
      becomes: 'READY',
      shows: now,
      after: nothing,
    }),
    change(cloud, service, 'undo upgrade', {
      before: become(newer),
      ask: ['POST', '/upgrade', () => ({ undo: true, confirm: 'upgraded' })],
      becomes: 'READY',
      shows: now,
      after: nothing,
    }),
    change(cloud, service, 'try upgrade', {
      before: become(OLDER_MAJOR),
      ask: ['POST', '/upgrade', () => ({ pg_version: newer, try: true })],
      becomes: 'READY',
      shows: async () => [await now(), await readdir(join(cloud.home, 'data', 'scratch'))],
      after: nothing,
    }),
  ];
}
