/**
 * Keeps spares running, so that the next create finds one: a spare is a service without a project.
 */
import { DEFAULT_SIZE } from '@howdah/contract';
import { defaultAddons, defaultMajor } from '../domain/service/spec.ts';
import { type Addresses, NoPortLeft, type PortLedger, type Endpoint } from '../engine/spec.ts';
import type { Region } from '../engine/regions.ts';
import { newId } from '../lib/ids.ts';
import type { Store } from '../store/database.ts';
import { makeDue } from '../store/claims.ts';
import { insertService } from '../store/new-services.ts';
import { createPortLedger } from '../store/regions.ts';
import { changeService, lockService } from '../store/services.ts';
import { countSpares, listStaleSpares } from '../store/spares.ts';

/**
 * Brings the number of a region's spares of the default type and size to `wanted`. Removes the
 * spares that no longer match the configuration.
 */
export async function keepSpares(store: Store, region: Region, wanted: number): Promise<void> {
  const { addresses } = region.engine;
  const addons = defaultAddons(region.engine);
  const kind = { addons, major: defaultMajor(region.engine, addons) };
  for (const id of await listStaleSpares(store.db, region.code, {
    ...kind,
    isCurrent: (endpoint) => addresses.isCurrent(endpoint),
    keep: wanted,
  })) {
    await store.db.transaction().execute(async (tx) => {
      const locked = await lockService(tx, id);
      if (locked === null || locked.service.project_id !== null) return;
      await changeService(tx, locked.service, { deleting: true }, null);
      await makeDue(tx, id);
    });
  }
  const missing = wanted - (await countSpares(store.db, region.code, kind));
  for (let attempt = 0; attempt < missing; attempt++) {
    await store.db.transaction().execute(async (tx) => {
      // Locks the region: two rounds at the same time count one after the other.
      const id = newId();
      const endpoint = await reserveOrNull(addresses, createPortLedger(tx, region), id);
      if (endpoint === null) return;
      if ((await countSpares(tx, region.code, kind)) >= wanted) return;
      const spare = await insertService(tx, {
        id,
        region: region.code,
        ...kind,
        size: DEFAULT_SIZE,
        origin: null,
        endpoint,
      });
      await makeDue(tx, spare.id);
    });
  }
}

/** @returns null: no port is left, and there is no spare */
async function reserveOrNull(
  addresses: Addresses,
  ports: PortLedger,
  id: string,
): Promise<Endpoint | null> {
  try {
    return await addresses.reserve(ports, { id, poolerOf: null });
  } catch (error) {
    if (error instanceof NoPortLeft) return null;
    throw error;
  }
}
