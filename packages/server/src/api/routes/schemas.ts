/** Schemas that several routes share: the ids of a path, and answers without a body. */
import { Type } from 'typebox';

export const ofProject = Type.Object({ project_id: Type.String() });

export const ofService = Type.Object({ project_id: Type.String(), service_id: Type.String() });

export const accepted = Type.Null({
  description: 'accepted; the header Operation-Id names the operation',
});
