/**
 * The fields of a Cluster that others than Howdah have set. Pure; all of it is input. Howdah writes
 * as `howdah` and `howdah-state`, CloudNativePG nothing but the status.
 *
 * https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
 */
import { isDeepStrictEqual } from 'node:util';
import { Type, type Static } from 'typebox';

export const MANAGED_FIELDS = Type.Optional(
  Type.Array(
    Type.Object({
      manager: Type.Optional(Type.String()),
      subresource: Type.Optional(Type.String()),
      fieldsV1: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
    }),
  ),
);

/** A field of the spec, and who has set it. */
export type ForeignField = Readonly<{ manager: string; path: readonly string[]; value: unknown }>;

/** Fields of one manager that are kept: more than that are a change of the whole object. */
const MAX_FIELDS = 50;
/** Fields that a sentence names. */
const SHOWN_FIELDS = 5;
/** Longest value that is shown. */
const VALUE_LENGTH = 60;

/** The fields of others, with the values that they have now. */
export function foreignFields(
  managed: Static<typeof MANAGED_FIELDS> | undefined,
  spec: unknown,
): ForeignField[] {
  return (managed ?? [])
    .filter(
      ({ manager, subresource }) =>
        subresource === undefined && !/^howdah(-|$)/.test(manager ?? ''),
    )
    .flatMap(({ manager = 'somebody', fieldsV1 }) =>
      pathsIn(fieldsV1?.['f:spec'], ['spec'])
        .slice(0, MAX_FIELDS)
        .map((path) => ({ manager, path, value: valueAt(spec, path) })),
    );
}

/** A sentence for each manager. */
export function describeForeign(fields: readonly ForeignField[]): string[] {
  return [...new Set(fields.map(({ manager }) => manager))]
    .map((manager) => {
      const own = fields.filter((field) => field.manager === manager);
      const all = own.map(({ path, value }) => `${path.join('.')}: ${shown(value)}`);
      return `${manager} has set ${fewOf(all)}`;
    })
    .toSorted();
}

/**
 * The fields that others have set to another value than Howdah writes. Fields that Howdah does not
 * write are not among them.
 *
 * @param written the spec as Howdah writes it
 */
export function changedFields(fields: readonly ForeignField[], written: unknown): string[] {
  return fields.flatMap(({ manager, path, value }) => {
    const ours = valueAt(written, path);
    // A cluster keeps the fields of objects in an order of its own.
    if (ours === undefined || isDeepStrictEqual(ours, value)) return [];
    return [`${path.join('.')}: ${shown(value)} of ${manager} in place of ${shown(ours)}`];
  });
}

/** The first of some texts. */
export function fewOf(texts: readonly string[]): string {
  const more = texts.length > SHOWN_FIELDS ? ', and more' : '';
  return `${texts.slice(0, SHOWN_FIELDS).join(', ')}${more}`;
}

/** The paths of the leaves in a tree of managed fields. A list is a leaf. */
function pathsIn(tree: unknown, path: readonly string[]): string[][] {
  if (tree === undefined) return [];
  const parts = Object.entries(Object(tree)).filter(([key]) => key.startsWith('f:'));
  return parts.length === 0
    ? [[...path]]
    : parts.flatMap(([key, part]) => pathsIn(part, [...path, key.slice('f:'.length)]));
}

/** @param path begins with `spec` */
function valueAt(spec: unknown, [, ...path]: readonly string[]): unknown {
  let value = spec;
  for (const field of path)
    value = Object.hasOwn(Object(value), field) ? Reflect.get(Object(value), field) : undefined;
  return value;
}

/** A list of variables or connections may have a password in it. */
function shown(value: unknown): string {
  const isPlain = value === undefined || typeof value !== 'object' || value === null;
  const text = isPlain ? (JSON.stringify(value) ?? 'absent') : 'a list or an object';
  return text.length > VALUE_LENGTH ? `${text.slice(0, VALUE_LENGTH)}…` : text;
}
