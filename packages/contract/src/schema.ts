import { Type, type TSchema, type TUnsafe } from 'typebox';

/**
 * A string enumeration, published in the OpenAPI document as `{type: string, enum: [...]}` (a union
 * of literals is not).
 */
export function StringEnum<const T extends readonly string[]>(
  values: T,
  options: { description?: string; default?: T[number] } = {},
): TUnsafe<T[number]> {
  return Type.Unsafe<T[number]>({ type: 'string', enum: [...values], ...options });
}

/** Gives a schema its name in the OpenAPI document's `components.schemas`. */
export function Named<T extends TSchema>($id: string, schema: T): T & { $id: string } {
  return { ...schema, $id };
}

/**
 * A reference to a named schema that keeps the schema's static type, so that handlers are checked
 * against it.
 */
export function Ref<T extends TSchema>(schema: T & { $id: string }): TUnsafe<Type.Static<T>> {
  return Type.Unsafe<Type.Static<T>>({ $ref: `${schema.$id}#` });
}

/**
 * A property that old clients know by another spelling.
 *
 * @param goName its name in generated Go code, where both spellings would be the same
 */
export function oldSpelling<T extends TSchema>(schema: T, goName: string): TUnsafe<Type.Static<T>> {
  // The document has nothing beside a $ref.
  const inner = '$ref' in schema ? { allOf: [schema] } : schema;
  return Type.Unsafe<Type.Static<T>>({ ...inner, deprecated: true, 'x-go-name': goName });
}

/** Facts of a string, or of the names of a map, for generators of requests. */
export type DocumentedFacts = {
  pattern?: string;
  format?: 'date-time' | 'uri';
  propertyNames?: { pattern: string };
};

/**
 * Facts that the OpenAPI document shows beside a schema. Requests are checked by the service, whose
 * errors say more than a pattern that does not match.
 */
export const documented = (facts: DocumentedFacts): { 'x-documented': DocumentedFacts } => ({
  'x-documented': facts,
});
