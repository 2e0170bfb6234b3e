/** Logins as the admin role that have begun, by the titles of the processes of a server. */
import { ADMIN_ROLE } from '@howdah/contract';
import { argumentsOf, childrenOf, signal } from '../../../lib/processes.ts';
import type { InstancePaths } from '../host/layout.ts';
import type { AdminSessions } from '../../postgres/sessions/older-sessions.ts';
import { findServer } from './server.ts';
import { portOfServer } from '../../postgres/postmaster-file.ts';

/** The sessions of the admin role in an instance that runs. */
export const adminSessions = (paths: InstancePaths): AdminSessions => ({
  where: () => ({
    server: paths,
    port: portOfServer(paths) ?? 0,
    name: 'howdah members',
    limitMs: 3000,
    answerMs: 5000,
  }),
  endLogins: () => endLogins(paths),
});

/** Whether the title of a process of PostgreSQL is that of a login as the admin role. */
export const isLogin = (title: string): boolean =>
  new RegExp(`^postgres: (.*[: ])?${ADMIN_ROLE} .*authentication$`).test(
    title.replaceAll('\0', ' ').trim(),
  );

/** @returns how many logins were ended, which no view of PostgreSQL shows */
async function endLogins(paths: InstancePaths): Promise<number> {
  const server = await findServer(paths);
  if (server === null) return 0;
  const children = await childrenOf(server.postmaster.pid);
  const titles = await Promise.all(
    children.map(async (pid) => ({ pid, title: (await argumentsOf(pid)).join(' ') })),
  );
  const logins = titles.filter(({ title }) => isLogin(title));
  for (const { pid } of logins) signal(pid, 'SIGTERM');
  return logins.length;
}
