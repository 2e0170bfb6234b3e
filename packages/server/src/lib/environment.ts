/** Which variables of the environment have an effect on us and on the programs that we run. */

/**
 * Removes the variables of libpq. A shell in which `howdah service create -o env` was evaluated
 * has them, and the library of our own connections reads them: `PGSSLMODE` and `PGOPTIONS` would
 * hold for the metadata database and all servers.
 */
export function forgetForeign(environment: NodeJS.ProcessEnv): void {
  for (const name of Object.keys(environment)) if (name.startsWith('PG')) delete environment[name];
}

/**
 * The environment of a program that we run: variables by which a user configures compilers,
 * dynamic linkers, languages or PostgreSQL are not meant for it. Programs for administrators are
 * found too: a shell by `su` has a user's PATH.
 */
export function environmentOfPrograms({
  PATH = '/usr/bin:/bin',
  HOME,
  TMPDIR,
}: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return {
    PATH: `${PATH}:/usr/sbin:/sbin`,
    LANG: 'C.UTF-8',
    ...(HOME === undefined ? {} : { HOME }),
    ...(TMPDIR === undefined ? {} : { TMPDIR }),
  };
}
