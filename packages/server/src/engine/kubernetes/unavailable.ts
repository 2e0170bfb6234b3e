/** Errors of a cluster's API as users read them: they say nothing of the cluster itself. */
import { EngineUnavailable } from '../engine.ts';
import { KubeError } from './api/errors.ts';

export const NO_ANSWER = 'its Kubernetes cluster does not answer';

/** @throws EngineUnavailable for an error of the API; every other error as it is */
export function throwUnavailable(error: unknown): never {
  if (!(error instanceof KubeError)) throw error;
  const why =
    error.status === null
      ? NO_ANSWER
      : `its Kubernetes cluster refuses with the status ${error.status}`;
  throw new EngineUnavailable(why, { cause: error });
}
