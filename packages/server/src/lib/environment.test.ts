import { expect, test } from 'vitest';
import { environmentOfPrograms, forgetForeign } from './environment.ts';

test('variables of libpq in a shell have no effect on our own connections', () => {
  const environment = { PATH: '/bin', PGHOST: 'h', PGOPTIONS: '-c x=y', PGSSLMODE: 'verify-full' };
  forgetForeign(environment);
  expect(environment).toEqual({ PATH: '/bin' });
});

test('programs get a search path and no setting of another program', () => {
  expect(
    environmentOfPrograms({
      PATH: '/opt/bin',
      HOME: '/root',
      LC_ALL: 'de_DE.UTF-8',
      LD_PRELOAD: '/x.so',
      CPATH: '/include',
      AWS_SECRET_ACCESS_KEY: 's',
      PGDATA: '/var/lib/postgresql',
    }),
  ).toEqual({ PATH: '/opt/bin:/usr/sbin:/sbin', HOME: '/root', LANG: 'C.UTF-8' });
});
