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
import { answer, callerOf } from '../changes.ts';
import type { ApiContext, App } from '../context.ts';

const ofRegion = Type.Object({ region_code: Type.String() });
const tags = ['regions'];
const OPERATORS = 'Needs an admin key of the operator project.';

export function kubernetesRegionRoutes(api: App, context: ApiContext): void {
  api.get(
    '/regions',
    {
      schema: {
        operationId: 'listKubernetesRegions',
        summary: 'List the regions on Kubernetes, oldest first',
        description: OPERATORS,
        tags,
        response: { 200: Type.Array(Ref(KubernetesRegionSchema)) },
      },
    },
    async () => describeKubernetesRegions(context),
  );

  api.post(
    '/regions',
    {
      schema: {
        operationId: 'addRegion',
        summary: 'Add a region: a Kubernetes cluster with the CloudNativePG operator',
        description:
          `${OPERATORS} The API of the cluster must answer. The kubeconfig is kept encrypted; ` +
          'answers never have it.',
        tags,
        body: Ref(AddRegionBody),
        response: { 201: Ref(KubernetesRegionSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await addRegion(context, callerOf(request), request.body)),
  );

  api.put(
    '/regions/:region_code/images',
    {
      schema: {
        operationId: 'setImages',
        summary: 'Set the images of PostgreSQL and of PgBouncer of a region on Kubernetes',
        description:
          `${OPERATORS} Servers get another image with their next restart, resize or start, and ` +
          'poolers at once, which ends their sessions.',
        tags,
        params: ofRegion,
        body: Ref(SetImagesBody),
        response: { 200: Ref(KubernetesRegionSchema) },
      },
    },
    async (request, reply) => {
      const { params, body } = request;
      return answer(reply, await setImages(context, callerOf(request), params.region_code, body));
    },
  );

  api.put(
    '/regions/:region_code/placement',
    {
      schema: {
        operationId: 'setPlacement',
        summary: 'Set on which nodes the pods of a region on Kubernetes run',
        description:
          `${OPERATORS} It is for servers, poolers, read replica sets and the pods that verify ` +
          'backups. Fields that are left out stay. Servers get another placement with their next ' +
          'restart, resize or start, and their pooler with them.',
        tags,
        params: ofRegion,
        body: Ref(SetPlacementBody),
        response: { 200: Ref(KubernetesRegionSchema) },
      },
    },
    async (request, reply) => {
      const { params, body } = request;
      return answer(
        reply,
        await setPlacement(context, callerOf(request), params.region_code, body),
      );
    },
  );

  api.delete(
    '/regions/:region_code',
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
    '/regions/:region_code/objectStore',
    {
      schema: {
        operationId: 'setObjectStore',
        summary: 'Keep WAL and base backups of the services of a region in an object store',
        description:
          `${OPERATORS} The bucket must answer. Its key is kept encrypted, and as a Secret in ` +
          'each namespace of the region; answers never have it. Services that run archive from ' +
          'their next restart on. Another place is refused without `move`: it ' +
          'begins empty, and what is in the former one stays.',
        tags,
        params: ofRegion,
        body: Ref(SetObjectStoreBody),
        response: { 200: Ref(KubernetesRegionSchema) },
      },
    },
    async (request, reply) => {
      const { params, body } = request;
      return answer(
        reply,
        await setObjectStore(context, callerOf(request), params.region_code, body),
      );
    },
  );

  api.get(
    '/regions/:region_code/doctor',
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
