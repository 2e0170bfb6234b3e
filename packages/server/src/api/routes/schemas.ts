/** Schemas that several routes share: the ids of a path, and answers without a body. */
import { StringEnum } from '@howdah/contract';
import { Type } from 'typebox';

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
