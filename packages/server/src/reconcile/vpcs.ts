/**
 * Makes the VPCs and allow lists of a region true: all of them in one go, when one was changed, and
 * now and then in case the machine lost something.
 */
import type { Region } from '../engine/regions.ts';
import type { Store } from '../store/database.ts';
import { refreshAllowLists } from '../store/allow-lists.ts';
import {
  expirePeeringRequests,
  deleteEmptyVpc,
  makeServicesDue,
  noteMade,
  vpcsAreMade,
  wantedVpcs,
  refreshAllowedNetworks,
} from '../store/vpcs.ts';
import type { Log } from '../lib/log.ts';
import type { Rounds } from '../lib/rounds.ts';

/** A request for a peering waits this long for its answer. */
const ANSWER_WITHIN_MS = 7 * 86_400_000;

export type VpcsOptions = {
  store: Store;
  region: Region;
  log: Log;
  rounds: Rounds;
  /** Has the reconciler look at a service. */
  lookAtService: (id: string) => void;
};

export function createVpcs({ store, region, log, rounds, lookAtService }: VpcsOptions) {
  const makeTrue = async (): Promise<void> => {
    const { db } = store;
    // Allow lists need no networks of the machine, and do not wait for any.
    for (const id of await refreshAllowLists(db, region.code)) lookAtService(id);
    await expirePeeringRequests(
      db,
      ANSWER_WITHIN_MS,
      'the other side did not ask for the same within 7 days; delete this one and ask again',
    );
    const wanted = await wantedVpcs(db, region.code);
    // A VPC that is being deleted keeps its network until the last service has left it.
    const specs = wanted.filter(({ deleting, addresses }) => !deleting || addresses.length > 0);
    const renewed = (await region.engine.networks?.converge(specs)) ?? [];
    const changed = wanted.filter(({ wanted: version, made }) => version !== made);
    for (const vpc of changed) {
      await db.transaction().execute(async (tx) => {
        if (!specs.includes(vpc) && (await deleteEmptyVpc(tx, vpc.id))) return;
        await noteMade(tx, vpc);
      });
    }
    for (const id of await refreshAllowedNetworks(db, region.code)) lookAtService(id);
    for (const id of await makeServicesDue(db, renewed)) lookAtService(id);
  };

  const round = rounds.every('vpcs', makeTrue, log);
  return {
    /** Makes all true once, since services need it, and goes on from there. */
    start: async (): Promise<void> => {
      store.listen('howdah_vpcs', () => void round.run());
      round.startLater();
      // After a crash of the machine nothing of a VPC is there.
      await round.run();
      if (!(await vpcsAreMade(store.db, region.code))) void round.run();
    },
    close: round.close,
  };
}
