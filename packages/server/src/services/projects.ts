/** Changes and reads of projects. */
import {
  ApiError,
  MAX_PROJECTS,
  type CreateProjectBody,
  type ProjectDetails,
  type ProjectLimits,
} from '@howdah/contract';
import { newId } from '../lib/ids.ts';
import type { Db } from '../store/tables.ts';
import {
  changeProject,
  countProjects,
  findProject,
  insertProject,
  lockLimits,
} from '../store/projects.ts';
import { answerWith, makeChange, type Caller, type Outcome } from './change.ts';
import type { ControlContext } from './control-context.ts';

export function createProject(
  { store }: ControlContext,
  caller: Caller,
  { name, limits = {} }: CreateProjectBody,
): Promise<Outcome> {
  return makeChange(store, caller, async (tx) => {
    // The lock orders simultaneous creates: together they must not exceed the limit.
    await lockLimits(tx, caller.projectId);
    if ((await countProjects(tx, MAX_PROJECTS)) >= MAX_PROJECTS)
      throw new ApiError(
        'LIMIT_EXCEEDED',
        `projects: there are ${MAX_PROJECTS}, the maximum of an installation; use one of them`,
      );
    const id = newId();
    await insertProject(tx, { id, name, limits });
    return answerWith(await readProject(tx, id));
  });
}

/** Sets the name or the limits of a project. */
export function setProject(
  { store }: ControlContext,
  caller: Caller,
  projectId: string,
  changed: { name?: string; limits?: ProjectLimits },
): Promise<Outcome> {
  return makeChange(store, caller, async (tx) => {
    await readProject(tx, projectId);
    await changeProject(tx, projectId, changed);
    return answerWith(await readProject(tx, projectId));
  });
}

/** @throws ApiError NOT_FOUND */
export async function readProject(db: Db, projectId: string): Promise<ProjectDetails> {
  const found = await findProject(db, projectId);
  if (found === null) throw projectNotFound(projectId);
  return found;
}

/** The answer to an operator for a project that does not exist. */
export function projectNotFound(id: string): ApiError {
  return new ApiError(
    'NOT_FOUND',
    `no project with that id exists: ${JSON.stringify(id.slice(0, 64))}; ` +
      'howdah project list shows them',
  );
}
