/** Keeps in the metadata database what the engine of a region records, and what it reports. */
import type { OperationStep } from '@howdah/contract';
import type { ClusterRecords } from '../engine/records.ts';
import type { Region } from '../engine/regions.ts';
import { commitWithoutFlush, type Store } from '../store/database.ts';
import {
  beginOperation,
  endOperation,
  HOWDAH,
  progressOperation,
  recordOperation,
} from '../store/operations.ts';
import {
  readRecord,
  recordPrimary,
  releaseServers,
  reserveServers,
  takeDrill,
} from '../store/engine-records.ts';
import { changeService, lockService } from '../store/services.ts';
import type { Log } from '../lib/log.ts';

export function createClusterRecords(
  { db }: Store,
  region: Pick<Region, 'code' | 'portRange'>,
  log: Log,
): ClusterRecords {
  return {
    read: (id) => readRecord(db, id),
    reserveServers: (id, numbers, isUsable) =>
      db.transaction().execute((tx) => reserveServers(tx, region, id, numbers, isUsable)),
    releaseServers: (id, numbers) => releaseServers(db, id, numbers),
    begin: (id) =>
      db.transaction().execute(async (tx) => {
        // The commit that records the other primary is flushed, and this one with it.
        await commitWithoutFlush(tx);
        const locked = await lockService(tx, id);
        if (
          locked === null ||
          locked.operation !== null ||
          locked.service.project_id === null ||
          locked.service.deleting
        )
          return;
        log.warn({ service: id }, 'the primary of a service died: failing over');
        const begun = await beginOperation(tx, locked.service, 'failover', HOWDAH, null);
        await changeService(
          tx,
          locked.service,
          { reachable: false },
          await progressOperation(tx, begun.id, [], null),
        );
      }),
    recordPrimary: (id, from, to) => recordPrimary(db, id, from, to),
    end: (id, steps: readonly OperationStep[], why) =>
      db.transaction().execute(async (tx) => {
        const locked = await lockService(tx, id);
        if (locked === null) return;
        const { service, operation } = locked;
        if (why !== null) {
          log.warn({ service: id, steps, why }, 'no replica can take over');
          if (operation?.kind !== 'failover') return;
          await endOperation(tx, operation.id, 'failed', `nobody can take over: ${why}`, steps);
          await changeService(tx, service, {}, null);
          return;
        }
        log.info({ service: id, steps }, 'failed over');
        if (operation?.kind === 'failover') {
          await endOperation(tx, operation.id, 'succeeded', null, steps);
          await changeService(tx, service, { reachable: true }, null);
        } else await recordOperation(tx, service, 'failover', HOWDAH, steps);
      }),
    takeDrill: (id) => takeDrill(db, id),
  };
}
