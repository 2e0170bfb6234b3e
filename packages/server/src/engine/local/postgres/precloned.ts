/**
 * A clone of each template in use, made ahead: a create takes it by renaming it, and waits for no
 * copy. It is flushed before it can be taken. Only the control plane that made it knows it; the
 * next one begins again.
 */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { cloneTree, removeTree } from '../host/clone.ts';
import { assertSpaceFor } from '../host/space.ts';
import { flushFileSystem } from '../host/flush.ts';
import type { Machine } from '../host/machine-record.ts';
import { type Owner, allocateUser } from '../host/users.ts';
import { mkdir, rename } from '../host/root-files.ts';
import type { Template } from './templates.ts';

/** Creates come first: the next clone is made when none was taken for this long. */
const AFTER_MS = 1000;
/** The bytes that must be free on the disk: a full disk needs its room for databases. */
const ROOM_BYTES = 2e9;

/**
 * A clone that nobody else has: its owner, and how to make it the data directory of an instance.
 * False: it is missing, clone the template.
 */
export type Clone = { owner: Owner | null; moveTo: (data: string) => Promise<boolean> };

export function createPrecloned(machine: Machine) {
  const { layout, cloneMethod, owner: shared, isolation } = machine;
  /** Templates whose clone can be taken, and whose user it belongs to. */
  const ready = new Map<string, Owner | null>();
  /** Templates whose clone is given to a create that may not have moved it yet. */
  const taken = new Set<string>();
  const timers = new Map<string, NodeJS.Timeout>();
  /** One clone is made at a time, and none before older ones are removed. */
  let making: Promise<void> | null = null;
  let closed = false;

  const placeOf = ({ name }: Template): string => join(layout.precloned, name);

  /** Removes what an earlier control plane left. */
  const clear = async (): Promise<void> => {
    for (const entry of await readdir(layout.precloned))
      await removeTree(join(layout.precloned, entry), cloneMethod);
    // Older releases kept them here.
    await removeTree(join(layout.root, 'stock'), cloneMethod);
  };

  const fill = async (template: Template): Promise<void> => {
    if (closed || ready.has(template.name) || taken.has(template.name)) return;
    const place = placeOf(template);
    await assertSpaceFor(ROOM_BYTES, layout.precloned);
    await removeTree(place, cloneMethod);
    await mkdir(place);
    const owner = isolation.isolated ? await allocateUser(isolation.users, place) : shared;
    await cloneTree(template.data, join(place, 'data'), machine, owner);
    await flushFileSystem(place);
    ready.set(template.name, owner);
  };

  /** Makes a clone of a template when there is time for it. */
  const fillSoon = (template: Template): void => {
    clearTimeout(timers.get(template.name));
    const begin = (): void => {
      timers.delete(template.name);
      // Without one a create clones by itself, and says what is wrong.
      making = (making ?? clear()).then(() => fill(template)).catch(() => undefined);
    };
    if (!closed) timers.set(template.name, setTimeout(begin, AFTER_MS).unref());
  };

  return {
    fillSoon,
    /**
     * Gives the clone of a template to `work`, and to nobody else; null: there is none. The next
     * clone is due when `work` has ended: until then this one may still stand where the next one is
     * made.
     */
    withClone: async <T>(
      template: Template,
      work: (clone: Clone | null) => Promise<T>,
    ): Promise<T> => {
      const owner = ready.get(template.name);
      if (owner === undefined) {
        fillSoon(template);
        return work(null);
      }
      ready.delete(template.name);
      const moveTo = (data: string): Promise<boolean> =>
        rename(join(placeOf(template), 'data'), data).then(
          () => true,
          () => false, // removed by hand; a failing disk fails the clone of the template as well
        );
      taken.add(template.name);
      try {
        return await work({ owner, moveTo });
      } finally {
        taken.delete(template.name);
        fillSoon(template);
      }
    },
    close: (): void => {
      closed = true;
      for (const timer of timers.values()) clearTimeout(timer);
    },
  };
}
export type Precloned = ReturnType<typeof createPrecloned>;
