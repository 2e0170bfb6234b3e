/** Records the major version of services that were made by a release without this column. */
import { defaultMajor } from '../domain/service/spec.ts';
import type { Region } from '../engine/regions.ts';
import type { Store } from '../store/database.ts';
import { changeService, lockService } from '../store/services.ts';
import { listWithoutMajor } from '../store/service-lists.ts';

/** That of their data; for services that have none yet, the one that a create would choose now. */
export async function recordMajors({ db }: Store, { code, engine }: Region): Promise<void> {
  for (const id of await listWithoutMajor(db, code)) {
    const found = await engine.lifecycle.majorOf(id);
    await db.transaction().execute(async (tx) => {
      const locked = await lockService(tx, id);
      if (locked === null) return;
      const { service, operation } = locked;
      const major = found ?? defaultMajor(engine, service.addons);
      await changeService(tx, service, { pg_version: major }, operation);
    });
  }
}
