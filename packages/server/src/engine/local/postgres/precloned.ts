/**
 * A clone of each template that is in use, made ahead: a create takes it by renaming it, and waits for no copy. It is on the disk
 * before it can be taken. What stands here is known to nobody but the control plane that made it; the next one begins again.
 */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { assertSpaceFor, cloneTree, removeTree } from '../host/clone.ts';
import { flushFileSystem } from '../host/flush.ts';
import type { Machine, Owner } from '../host/machine.ts';
import { mkdir, rename } from '../host/root-files.ts';
import type { Template } from './templates.ts';

/** Services that were just asked for come first: the next clone is made when nobody has taken one for this long. */
const AFTER_MS = 1000;
/** What has to be free on the disk, in bytes: a full one needs its room for databases. */
const ROOM_BYTES = 2e9;

export function createPrecloned({ layout, cloneMethod, owner: shared, isolation }: Machine) {
  /** Templates whose clone can be taken, and whose user it belongs to. */
  const ready = new Map<string, Owner | null>();
  const timers = new Map<string, NodeJS.Timeout>();
  /** One clone at a time is made, and none before what was here is gone. */
  let making: Promise<void> | null = null;
  let closed = false;

  const placeOf = ({ name }: Template): string => join(layout.precloned, name);

  /** What a control plane before this one left. */
  const clear = async (): Promise<void> => {
    for (const entry of await readdir(layout.precloned))
      await removeTree(join(layout.precloned, entry), cloneMethod);
    // Older releases kept them here.
    await removeTree(join(layout.root, 'stock'), cloneMethod);
  };

  const fill = async (template: Template): Promise<void> => {
    if (closed || ready.has(template.name)) return;
    const place = placeOf(template);
    await assertSpaceFor(ROOM_BYTES, layout.precloned);
    await removeTree(place, cloneMethod);
    await mkdir(place);
    const owner = isolation.isolated ? await isolation.users.allocate(place) : shared;
    await cloneTree(template.data, join(place, 'data'), cloneMethod, owner);
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
     * Takes the clone of a template, which no one else gets from here on; null: there is none.
     *
     * @returns its owner, and how to make it the data directory of an instance; false: it cannot be had, clone the template
     */
    take: (
      template: Template,
    ): { owner: Owner | null; moveTo: (data: string) => Promise<boolean> } | null => {
      const owner = ready.get(template.name);
      ready.delete(template.name);
      fillSoon(template);
      if (owner === undefined) return null;
      const moveTo = (data: string): Promise<boolean> =>
        rename(join(placeOf(template), 'data'), data).then(
          () => true,
          () => false, // taken away by hand; a disk that fails is met again by the clone
        );
      return { owner, moveTo };
    },
    close: (): void => {
      closed = true;
      for (const timer of timers.values()) clearTimeout(timer);
    },
  };
}
export type Precloned = ReturnType<typeof createPrecloned>;
