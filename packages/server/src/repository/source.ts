/** The repositories of the installation, for the engines that send backups to them. */
import { forForeign } from './pgbackrest.ts';
import { RepositoryProblem, type PgBackRest, type Repository } from './repository.ts';

/** A repository, and for how long backups are kept in it. */
export type KeptRepository = Repository & { retentionDays: number };

export type RepositorySource = {
  /** The installed pgBackRest; null: there is none. */
  program: PgBackRest | null;
  /** Those that this installation owns, with their credentials. */
  list: () => Promise<readonly KeptRepository[]>;
  /** Decrypts a repository of another installation with its credentials; null: it cannot. */
  open: (sealed: string) => Repository | null;
  /** The ids of those that there were when they were last listed. */
  known: () => readonly string[];
};

/** @throws RepositoryProblem without pgBackRest, and for a repository that cannot be used now */
export async function findRepository(
  source: RepositorySource,
  id: string,
): Promise<{ program: PgBackRest; repository: KeptRepository }> {
  const { list } = source;
  const program = programOf(source);
  const repository = (await list()).find((one) => one.id === id);
  if (repository === undefined)
    throw new RepositoryProblem(
      `the repository ${id} is not known here, or another installation has taken it over: ` +
        'howdah repo list shows those that there are; howdah recover begins again from a kit',
    );
  return { program, repository };
}

/**
 * A repository of another installation, and the program that reads it and can write no repository
 * of ours.
 *
 * @throws RepositoryProblem without pgBackRest or its user, and with another key than it was
 *   encrypted with
 */
export async function openForeign(
  source: RepositorySource,
  sealed: string,
): Promise<{ program: PgBackRest; repository: Repository }> {
  const program = await forForeign(programOf(source));
  const repository = source.open(sealed);
  if (repository === null)
    throw new RepositoryProblem(
      'the credentials of the repository cannot be read: HOWDAH_HOME/secrets.key is not the file ' +
        'it was; delete the service, and make it again from the recovery kit',
    );
  return { program, repository };
}

function programOf({ program }: RepositorySource): PgBackRest {
  if (program !== null) return program;
  throw new RepositoryProblem(
    'pgBackRest is not installed: apt-get install pgbackrest, or howdah up as root',
  );
}
