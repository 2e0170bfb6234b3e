/** Items by the group that each belongs to, so that the items of one are found at once. */

export type Groups = Readonly<{
  /** Puts an item into a group, out of the one it was in; null: into none. */
  put: (item: string, group: string | null) => void;
  of: (group: string) => ReadonlySet<string>;
  clear: () => void;
}>;

const NONE: ReadonlySet<string> = new Set();

export function createGroups(): Groups {
  const items = new Map<string, Set<string>>();
  const groups = new Map<string, string>();
  return {
    put: (item, group) => {
      const before = groups.get(item) ?? null;
      if (before === group) return;
      if (before !== null) {
        const those = items.get(before);
        those?.delete(item);
        if (those?.size === 0) items.delete(before);
        groups.delete(item);
      }
      if (group === null) return;
      groups.set(item, group);
      items.set(group, (items.get(group) ?? new Set<string>()).add(item));
    },
    of: (group) => items.get(group) ?? NONE,
    clear: () => {
      items.clear();
      groups.clear();
    },
  };
}
