/** Schemas that several routes share: the ids of a path, and what resources have in common. */
import { Ref, StringEnum, type CallName } from '@howdah/contract';
import { Type, type TObject, type TSchema } from 'typebox';

export const ofProject = Type.Object({ project_id: Type.String() });

export const ofService = Type.Object({ project_id: Type.String(), service_id: Type.String() });

/** Calls that take a size accept `force` in their body, too. */
export const ForceQuery = Type.Object({
  force: Type.Optional(
    StringEnum(['true', 'false'], {
      description: 'true: accept a size that is more than the machine, or the largest node, has',
    }),
  ),
});

export const accepted = Type.Null({
  description: 'accepted; the header Operation-Id names the operation',
});

type NamedSchema<T extends TSchema> = T & { $id: string };

/**
 * The schemas of the calls that resources have in common. Each takes the name of its call and the
 * texts of the OpenAPI document; the place of the resource has its path and its handler.
 *
 * @param ofMany the ids in the path of the list; `ofOne`: those in the path of one of them
 * @param document one of them, as answers show it
 */
export function resourceSchemas<
  Many extends TObject,
  One extends TObject,
  Document extends TSchema,
>({
  tag,
  ofMany,
  ofOne,
  document,
}: {
  tag: string;
  ofMany: Many;
  ofOne: One;
  document: NamedSchema<Document>;
}) {
  const texts = (operationId: CallName, summary: string, description?: string) => ({
    operationId,
    summary,
    ...(description === undefined ? {} : { description }),
    tags: [tag],
  });
  type Texts = Parameters<typeof texts>;

  return {
    list: (...of: Texts) => ({
      schema: {
        ...texts(...of),
        params: ofMany,
        response: { 200: Type.Array(Ref<Document>(document)) },
      },
    }),
    get: (...of: Texts) => ({
      schema: { ...texts(...of), params: ofOne, response: { 200: Ref<Document>(document) } },
    }),
    create: <Body extends TSchema>(body: NamedSchema<Body>, ...of: Texts) => ({
      schema: {
        ...texts(...of),
        params: ofMany,
        body: Ref<Body>(body),
        response: { 201: Ref<Document>(document) },
      },
    }),
    update: <Body extends TSchema>(body: NamedSchema<Body>, ...of: Texts) => ({
      schema: {
        ...texts(...of),
        params: ofOne,
        body: Ref<Body>(body),
        response: { 200: Ref<Document>(document) },
      },
    }),
    delete: (...of: Texts) => ({
      schema: {
        ...texts(...of),
        params: ofOne,
        response: { 204: Type.Null({ description: 'deleted' }) },
      },
    }),
  };
}
