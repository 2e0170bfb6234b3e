/** Routes of regions on Kubernetes. */
import {
  AddRegionBody,
  FindingSchema,
  KubernetesRegionSchema,
  Ref,
  SetObjectStoreBody,
  SetImagesBody,
  SetPlacementBody,
} from '@howdah/contract';
import { Type } from 'typebox';
import {
  addRegion,
  describeKubernetesRegions,
  examineRegion,
  removeRegion,
  setObjectStore,
  setImages,
} from '../../services/kubernetes-regions.ts';
import { setPlacement } from '../../services/region-placement.ts';
import { answer, callerOf } from '../change-requests.ts';
import type { ApiContext, App } from '../context.ts';
import { resourceSchemas } from './schemas.ts';

const REGIONS = '/regions';
const REGION = `${REGIONS}/:region_code`;
const ofRegion = Type.Object({ region_code: Type.String() });
const tags = ['regions'];
const kubernetesRegions = resourceSchemas({
  tag: 'regions',
  ofMany: Type.Object({}),
  ofOne: ofRegion,
  document: KubernetesRegionSchema,
});
const OPERATORS = 'Needs an admin key of the operator project.';

export function kubernetesRegionRoutes(api: App, context: ApiContext): void {
  api.get(
    REGIONS,
    kubernetesRegions.list(
      'listKubernetesRegions',
      'List the regions on Kubernetes, oldest first',
      OPERATORS,
    ),
    async () => describeKubernetesRegions(context),
  );

  api.post(
    REGIONS,
    kubernetesRegions.create(
      AddRegionBody,
      'addRegion',
      'Add a region: a Kubernetes cluster with the CloudNativePG operator',
      `${OPERATORS} The API of the cluster must answer. The kubeconfig is kept encrypted; ` +
        'answers never have it.',
    ),
    async (request, reply) =>
      answer(reply, await addRegion(context, callerOf(request), request.body)),
  );

  api.put(
    `${REGION}/images`,
    kubernetesRegions.update(
      SetImagesBody,
      'setImages',
      'Set the images of PostgreSQL and of PgBouncer of a region on Kubernetes',
      `${OPERATORS} Servers get another image with their next restart, resize or start, and ` +
        'poolers at once, which ends their sessions.',
    ),
    async (request, reply) => {
      const { params, body } = request;
      return answer(reply, await setImages(context, callerOf(request), params.region_code, body));
    },
  );

  api.put(
    `${REGION}/placement`,
    kubernetesRegions.update(
      SetPlacementBody,
      'setPlacement',
      'Set on which nodes the pods of a region on Kubernetes run',
      `${OPERATORS} It is for servers, poolers, read replica sets and the pods that verify ` +
        'backups. Fields that are left out stay. Servers get another placement with their next ' +
        'restart, resize or start, and their pooler with them.',
    ),
    async (request, reply) => {
      const { params, body } = request;
      return answer(
        reply,
        await setPlacement(context, callerOf(request), params.region_code, body),
      );
    },
  );

  api.delete(
    REGION,
    {
      schema: {
        operationId: 'removeRegion',
        summary: 'Remove a region on Kubernetes that has no services',
        description: `${OPERATORS} Nothing in its cluster is changed.`,
        tags,
        params: ofRegion,
        response: { 204: Type.Null({ description: 'removed' }) },
      },
    },
    async (request, reply) =>
      answer(reply, await removeRegion(context, callerOf(request), request.params.region_code)),
  );

  api.put(
    `${REGION}/objectStore`,
    kubernetesRegions.update(
      SetObjectStoreBody,
      'setObjectStore',
      'Keep WAL and base backups of the services of a region in an object store',
      `${OPERATORS} The bucket must answer. Its key is kept encrypted, and as a Secret in ` +
        'each namespace of the region; answers never have it. Services that run archive from ' +
        'their next restart on. Another place is refused without `move`: it ' +
        'begins empty, and what is in the former one stays.',
    ),
    async (request, reply) => {
      const { params, body } = request;
      return answer(
        reply,
        await setObjectStore(context, callerOf(request), params.region_code, body),
      );
    },
  );

  api.get(
    `${REGION}/doctor`,
    {
      schema: {
        operationId: 'examineRegion',
        summary: 'Examine the cluster of a region on Kubernetes',
        description: `${OPERATORS} What is there, what is missing, and what adds it.`,
        tags,
        params: ofRegion,
        response: { 200: Type.Array(Ref(FindingSchema)) },
      },
    },
    async (request) => examineRegion(context, request.params.region_code),
  );
}
