/** Sets where the pods of a region on Kubernetes run, and how they get their images. */
import { ApiError, type Placement, type SetPlacementBody } from '@howdah/contract';
import {
  findKubernetesRegion,
  listPooled,
  listServicesIn,
  lockKubernetesRegions,
  updatePlacement,
  type KubernetesRegionRow,
} from '../store/kubernetes-regions.ts';
import { makeDue } from '../store/claims.ts';
import type { Tx } from '../store/tables.ts';
import { answerWith, makeChange, type Caller, type Outcome } from './change.ts';
import {
  documentOf,
  rowOrRefuse,
  type KubernetesRegionContext,
  refusePlacement,
  sealedRegistries,
} from './kubernetes-regions.ts';

/** Fields that are left out stay. Servers get another placement with their next start. */
export async function setPlacement(
  context: KubernetesRegionContext,
  caller: Caller,
  code: string,
  body: SetPlacementBody,
): Promise<Outcome> {
  const { store, clusters } = context;
  refuseOfService(body);
  refusePlacement(body.placement ?? {});
  const { wal_storage_class: walClass, image_pull_secret: config } = body;
  const registries = config === undefined ? {} : sealedRegistries(clusters.sealer, config);
  const set = await makeChange(store, caller, async (tx) => {
    const row = rowOrRefuse(await lockKubernetesRegions(tx), code);
    const written = await updatePlacement(tx, code, {
      ...(await placementsOf(tx, row, body)),
      ...(walClass === undefined ? {} : { wal_storage_class: walClass }),
      ...registries,
    });
    return answerWith(documentOf(written));
  });
  const row = await findKubernetesRegion(store.db, code);
  if (row === null || caller.dryRun) return set;
  clusters.useSettings(row);
  await store.db.transaction().execute(async (tx) => {
    for (const id of await listPooled(tx, code)) await makeDue(tx, id);
  });
  return set;
}

function refuseOfService({
  service_id: id,
  placement,
  wal_storage_class: walClass,
  image_pull_secret: config,
}: SetPlacementBody): void {
  if (id === undefined) return;
  if (placement === undefined)
    throw new ApiError('INVALID_REQUEST', 'placement: expected that of the service; {} has none');
  if (walClass !== undefined || config !== undefined)
    throw new ApiError(
      'INVALID_REQUEST',
      'service_id: wal_storage_class and image_pull_secret are those of the region; set them ' +
        'without a service',
    );
}

async function placementsOf(
  tx: Tx,
  { code, service_placements: before }: KubernetesRegionRow,
  { service_id: id, placement }: SetPlacementBody,
): Promise<{ placement?: string; service_placements?: string }> {
  if (placement === undefined) return {};
  if (id === undefined) return { placement: JSON.stringify(placement) };
  const kept = await listServicesIn(tx, code, [...Object.keys(before), id]);
  if (!kept.includes(id))
    throw new ApiError('NOT_FOUND', `service_id: the region ${code} has no service ${id}`);
  const all = { ...before, [id]: placement };
  const isSet = (one: string): boolean => Object.keys(all[one] ?? {}).length > 0;
  const entries = kept.filter(isSet).map((one): [string, Placement] => [one, all[one] ?? {}]);
  return { service_placements: JSON.stringify(Object.fromEntries(entries)) };
}
