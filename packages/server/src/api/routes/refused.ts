/**
 * Calls of Tiger Cloud that have nothing behind them here. Their answer is the reason, so that
 * nobody looks for a mistake in a path. They are not part of the OpenAPI document.
 */
import { ApiError } from '@howdah/contract';
import type { App } from '../context.ts';
import { ofService } from './schemas.ts';

const REFUSED = [
  {
    method: ['POST'],
    path: 'enableDataTiering',
    why:
      'there is no object storage behind this installation that old data could be moved to; ' +
      'POST …/resize with storage_gb gives the service more disk',
  },
  {
    method: ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'],
    path: 'tags',
    why:
      'services have no tags; POST …/rename sets the name, and POST …/setEnvironment the ' +
      'environment tag',
  },
] as const;

export function refusedRoutes(api: App): void {
  for (const { method, path, why } of REFUSED)
    api.route({
      method: [...method],
      url: `/projects/:project_id/services/:service_id/${path}`,
      // They change nothing: a key that may read the service gets the reason.
      schema: { hide: true, operationId: 'getService', params: ofService },
      handler: () => {
        throw new ApiError('UNAVAILABLE_HERE', `${path}: ${why}`);
      },
    });
}
