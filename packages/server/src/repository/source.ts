/** The repositories of the installation, for the engines that send backups to them. */
import { RepositoryProblem, type PgBackRest, type Repository } from './repository.ts';

/** A repository, and for how long backups are kept in it. */
export type KeptRepository = Repository & { retentionDays: number };

export type RepositorySource = {
  /** The installed pgBackRest; null: there is none. */
  program: PgBackRest | null;
  /** Those that this installation owns, with their credentials. */
  list: () => Promise<readonly KeptRepository[]>;
  /** The ids of those that there were when they were last listed. */
  known: () => readonly string[];
};

/** @throws RepositoryProblem without pgBackRest, and for a repository that cannot be used now */
export async function findRepository(
  { program, list }: RepositorySource,
  id: string,
): Promise<{ program: PgBackRest; repository: KeptRepository }> {
  if (program === null)
    throw new RepositoryProblem(
      'pgBackRest is not installed: apt-get install pgbackrest, or howdah up as root',
    );
  const repository = (await list()).find((one) => one.id === id);
  if (repository === undefined)
    throw new RepositoryProblem(
      `the repository ${id} is not known here, or another installation has taken it over: ` +
        'howdah repo list shows those that there are; howdah recover begins again from a kit',
    );
  return { program, repository };
}
