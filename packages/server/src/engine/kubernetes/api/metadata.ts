/** The metadata of objects, as far as they are read. */
import { Type } from 'typebox';

export const TEXTS = Type.Record(Type.String(), Type.String());
export const METADATA = Type.Object({
  name: Type.String(),
  namespace: Type.String(),
  uid: Type.String(),
  // Digits, by which an older state is known from a newer one.
  resourceVersion: Type.String({ pattern: '^[0-9]+$' }),
  /** Grows with each change of what is desired. */
  generation: Type.Optional(Type.Number()),
  deletionTimestamp: Type.Optional(Type.String()),
  labels: Type.Optional(TEXTS),
  annotations: Type.Optional(TEXTS),
});
