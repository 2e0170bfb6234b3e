/**
 * The owner of a repository: the one installation that may write to it. Two installations with the
 * same services would overwrite each other's WAL, and neither could be restored.
 */
import { hostname } from 'node:os';
import { getObject, markPassphrase, putObject } from './objects.ts';
import { RepositoryProblem, type PgBackRest, type Repository } from './repository.ts';

/** The object that names the owner. */
const OWNER = 'owner.json';

type Owner = { installation: string; host: string; since: string };

/** Another installation owns the repository. */
export class OtherOwner extends RepositoryProblem {}

/** The owner of a repository; null: it has none. @throws RepositoryProblem */
export async function readOwner(
  program: PgBackRest,
  repository: Repository,
): Promise<Owner | null> {
  const contents = await getObject(program, repository, OWNER);
  return contents === null ? null : parseOwner(contents.toString('utf8'));
}

/**
 * Makes an installation the owner of a repository; again, if it was interrupted.
 *
 * @param takeOver the id of the owner, which no longer runs; null: it must be free
 * @throws RepositoryProblem when another installation owns it
 */
export async function claimRepository(
  program: PgBackRest,
  repository: Repository,
  installation: string,
  takeOver: string | null,
): Promise<void> {
  const owner = await readOwner(program, repository);
  if (owner?.installation === installation) return;
  if (owner !== null && owner.installation !== takeOver) throw ownedBy(owner);
  await markPassphrase(program, repository);
  const claimed: Owner = { installation, host: hostname(), since: new Date().toISOString() };
  await putObject(program, repository, OWNER, Buffer.from(JSON.stringify(claimed)));
}

/** @throws RepositoryProblem when an installation does not own a repository any more */
export async function assertOwner(
  program: PgBackRest,
  repository: Repository,
  installation: string,
): Promise<void> {
  const owner = await readOwner(program, repository);
  if (owner === null)
    throw new RepositoryProblem(
      'the repository names no owner: its contents were removed; remove it here and add it again',
    );
  if (owner.installation !== installation) throw ownedBy(owner);
}

/** The problem of a repository with another owner. */
export const ownedBy = ({ installation, host, since }: Owner): OtherOwner =>
  new OtherOwner(
    `the repository belongs to the installation ${installation} on ${host} since ${since}: ` +
      'choose another path; or, if that installation no longer runs, take the repository over ' +
      'with its id and its recovery kit (howdah repo add … --kit FILE --take-over ID)',
  );

function parseOwner(text: string): Owner {
  const parsed: unknown = JSON.parse(text);
  const property = (name: keyof Owner): string => {
    const value: unknown =
      typeof parsed === 'object' && parsed !== null ? Reflect.get(parsed, name) : undefined;
    if (typeof value !== 'string')
      throw new RepositoryProblem(
        'the owner of the repository cannot be read: another program wrote to it',
      );
    return value;
  };
  return {
    installation: property('installation'),
    host: property('host'),
    since: property('since'),
  };
}
