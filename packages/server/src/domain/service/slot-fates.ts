/**
 * What becomes of the replication slots of users when the primary of their service changes
 * (docs/decisions/0083-failover-slots.md).
 */

/** `hasFailover`: null, where PostgreSQL is older than 17 and does not know such slots. */
export type SlotOfUsers = { readonly name: string; readonly hasFailover: boolean | null };

export type SlotFates = {
  /** Slots that go on: the standbys have them. */
  readonly kept: readonly string[];
  /** Slots that go on if a standby has them by then. */
  readonly unsynchronised: readonly string[];
  readonly removed: readonly string[];
  /** Whether a slot that is made as a failover slot would go on. */
  readonly canBeKept: boolean;
};

/** @param synchronised the slots that each standby has; null: slots do not go on in the region */
export function slotFates(
  slots: readonly SlotOfUsers[],
  synchronised: readonly string[] | null,
): SlotFates {
  const goesOn = ({ hasFailover }: SlotOfUsers): boolean =>
    synchronised !== null && hasFailover === true;
  const isThere = ({ name }: SlotOfUsers): boolean => synchronised?.includes(name) === true;
  const namesOf = (some: readonly SlotOfUsers[]): string[] => some.map(({ name }) => name);
  return {
    kept: namesOf(slots.filter((slot) => goesOn(slot) && isThere(slot))),
    unsynchronised: namesOf(slots.filter((slot) => goesOn(slot) && !isThere(slot))),
    removed: namesOf(slots.filter((slot) => !goesOn(slot))),
    canBeKept: synchronised !== null && slots.some(({ hasFailover }) => hasFailover !== null),
  };
}
