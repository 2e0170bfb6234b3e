/** Compares what two databases contain. Pure: the catalogs are read elsewhere. */

/** An object of a database, as {@link OBJECTS_SQL} describes it. */
export type DatabaseObject = {
  kind: string;
  /** Unique among those of its kind, with its schema, quoted as SQL needs it. */
  name: string;
  /** The table that it belongs to; null: it belongs to none. */
  of: string | null;
  definition: string;
};

type Shown = { kind: string; name: string; definition: string };

export type SchemaDiff = {
  added: (Shown & { parts?: string[] })[];
  removed: (Shown & { parts?: string[] })[];
  changed: { kind: string; name: string; from: string; to: string }[];
};

/** The most of a definition that is shown; all of it is compared. */
const MAX_CHARACTERS = 2000;

/** Columns, keys and indexes of a table that is new or gone are parts of its entry. */
export function diffSchemas(
  from: readonly DatabaseObject[],
  to: readonly DatabaseObject[],
): SchemaDiff {
  const [before, after] = [byKey(from), byKey(to)];
  return {
    added: entriesOf(to.filter((one) => !before.has(keyOf(one)))),
    removed: entriesOf(from.filter((one) => !after.has(keyOf(one)))),
    changed: to.flatMap((one) => {
      const former = before.get(keyOf(one));
      if (former === undefined || former.definition === one.definition) return [];
      const { kind, name, definition } = one;
      return [{ kind, name, from: shortened(former.definition), to: shortened(definition) }];
    }),
  };
}

const keyOf = ({ kind, name }: DatabaseObject): string => `${kind}\0${name}`;

const byKey = (objects: readonly DatabaseObject[]): Map<string, DatabaseObject> =>
  new Map(objects.map((one) => [keyOf(one), one]));

function entriesOf(objects: readonly DatabaseObject[]): SchemaDiff['added'] {
  const tables = new Set(objects.filter(({ of }) => of === null).map(({ name }) => name));
  const partsOf = (table: string): string[] =>
    objects
      .filter(({ of }) => of === table)
      .map(({ kind, name, definition }) => shortened(`${kind} ${name}: ${definition}`));
  return objects
    .filter(({ of }) => of === null || !tables.has(of))
    .map(({ kind, name, of, definition }) => {
      const parts = of === null ? partsOf(name) : [];
      const shown = { kind, name, definition: shortened(definition) };
      return parts.length === 0 ? shown : { ...shown, parts };
    });
}

const shortened = (text: string): string =>
  text.length <= MAX_CHARACTERS ? text : `${text.slice(0, MAX_CHARACTERS)}…`;

/** "2 added: table public.a, index public.b; 1 changed: …", or that there is no difference. */
export function describeDiff({ added, removed, changed }: SchemaDiff): string {
  const words = Object.entries({ added, removed, changed }).flatMap(([how, entries]) => {
    if (entries.length === 0) return [];
    const named = entries.slice(0, 5).map(({ kind, name }) => `${kind} ${name}`);
    const more = entries.length > named.length ? ', …' : '';
    return [`${entries.length} ${how}: ${named.join(', ')}${more}`];
  });
  return words.join('; ') || 'no difference of the schema';
}

/** A table, and how many rows it has; null: not known. */
export type RowCount = { table: string; rows: number | null };

/** The tables with another number of rows; a table of one side alone has null on the other. */
export function diffRows(
  from: readonly RowCount[],
  to: readonly RowCount[],
): { table: string; from: number | null; to: number | null }[] {
  const [before, after] = [from, to].map(
    (counts) => new Map(counts.map(({ table, rows }) => [table, rows])),
  );
  const tables = new Set([...from, ...to].map(({ table }) => table));
  return [...tables]
    .toSorted()
    .map((table) => ({
      table,
      from: before?.get(table) ?? null,
      to: after?.get(table) ?? null,
    }))
    .filter((one) => one.from !== one.to);
}

/** The modes of table locks, the weakest first. */
const LOCK_MODES = [
  'AccessShareLock',
  'RowShareLock',
  'RowExclusiveLock',
  'ShareUpdateExclusiveLock',
  'ShareLock',
  'ShareRowExclusiveLock',
  'ExclusiveLock',
  'AccessExclusiveLock',
] as const;

/** A lock of a table, and which statements of others wait for it. */
export type Lock = { table: string; mode: string; blocks: 'reads and writes' | 'writes' };

/** The strongest lock of each table, of those that make reads or writes of others wait. */
export function blockingLocks(held: readonly { table: string; mode: string }[]): Lock[] {
  const strongest = new Map<string, number>();
  for (const { table, mode } of held) {
    const rank = LOCK_MODES.findIndex((one) => one === mode);
    strongest.set(table, Math.max(rank, strongest.get(table) ?? 0));
  }
  return [...strongest].flatMap(([table, rank]): Lock[] => {
    const mode = LOCK_MODES[rank];
    if (mode === undefined || rank < LOCK_MODES.indexOf('ShareLock')) return [];
    return [
      { table, mode, blocks: mode === 'AccessExclusiveLock' ? 'reads and writes' : 'writes' },
    ];
  });
}
