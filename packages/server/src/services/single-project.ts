/** Installations whose services share an operating system user, which one project alone may use. */
import { ApiError } from '@howdah/contract';
import type { Region, Regions } from '../engine/regions.ts';
import { isAnotherProjectOutside } from '../store/regions.ts';
import type { Tx } from '../store/tables.ts';

/**
 * Refuses a second project if all services run as one operating system user and the operator
 * allows one project only. Services of regions that are switched off count: they run as that user.
 */
export async function refuseSecondProject(
  tx: Tx,
  regions: Regions,
  region: Region,
  projectId: string,
): Promise<void> {
  if (!isShared(region)) return;
  const others = regions.all.filter((one) => !isShared(one)).map(({ code }) => code);
  if (!(await isAnotherProjectOutside(tx, others, projectId))) return;
  const { note } = region.engine.capabilities.isolation;
  throw new ApiError(
    'UNAVAILABLE_HERE',
    'another project has services here, and HOWDAH_SINGLE_PROJECT=yes allows no second one ' +
      `while ${note}. Run Howdah as root, so that each service has an operating system user ` +
      'of its own, or use another installation',
  );
}

/** Whether services run as one operating system user, which one project alone may use. */
function isShared({ engine, singleProject }: Region): boolean {
  return singleProject && !engine.capabilities.isolation.isolated;
}
