/** Leases: take, list, get, extend and return. */
import {
  ExtendLeasesBody,
  LeaseSchema,
  LeasesSchema,
  Ref,
  ReturnLeasesBody,
  TakeLeasesBody,
} from '@howdah/contract';
import { Type } from 'typebox';
import {
  extendLeases,
  leaseDocument,
  readLease,
  returnLease,
  returnLeases,
  takeLeases,
} from '../../services/leases.ts';
import { listLeases } from '../../store/leased-servers.ts';
import { answer, callerOf } from '../change-requests.ts';
import type { ApiContext, App } from '../context.ts';
import { pageOf, paging, sendList } from '../paging.ts';
import { ofProject } from './schemas.ts';

const LEASES = '/projects/:project_id/leases';
const LEASE = `${LEASES}/:lease_id`;
const ofLease = Type.Object({ project_id: Type.String(), lease_id: Type.String() });
const tags = ['leases'];

export function leaseRoutes(api: App, context: ApiContext): void {
  const { store } = context;
  api.post(
    LEASES,
    {
      schema: {
        operationId: 'takeLeases',
        summary: 'Take copies of a service for tests',
        description:
          'Each has all that was committed in the service before the call. The answer comes when ' +
          'all are ready, or after 20 seconds: `ready` says which are. It contains the ' +
          'passwords, which no other answer contains.',
        tags,
        params: ofProject,
        body: Ref(TakeLeasesBody),
        response: { 201: Ref(LeasesSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await takeLeases(context, callerOf(request), request.body)),
  );

  api.get(
    LEASES,
    {
      schema: {
        operationId: 'listLeases',
        summary: 'List the leases, oldest first',
        tags,
        params: ofProject,
        querystring: Type.Object(paging('position')),
        response: { 200: Type.Array(Ref(LeaseSchema)) },
      },
    },
    async (request, reply) =>
      sendList(request, reply, 'position', async (after, limit) =>
        pageOf(
          await listLeases(store.db, request.key.project_id, after, limit + 1),
          limit,
          leaseDocument,
          ({ position }) => position,
        ),
      ),
  );

  api.get(
    LEASE,
    {
      schema: {
        operationId: 'getLease',
        summary: 'Get a lease',
        tags,
        params: ofLease,
        response: { 200: Ref(LeaseSchema) },
      },
    },
    async (request) =>
      leaseDocument(await readLease(store.db, request.key.project_id, request.params.lease_id)),
  );

  api.post(
    `${LEASES}/extend`,
    {
      schema: {
        operationId: 'extendLeases',
        summary: 'Extend leases',
        description:
          'Done when it is answered. The answer has the leases that have not ended: a lease that ' +
          'is missing was returned.',
        tags,
        params: ofProject,
        body: Ref(ExtendLeasesBody),
        response: { 200: Ref(LeasesSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await extendLeases(context, callerOf(request), request.body)),
  );

  api.post(
    `${LEASES}/return`,
    {
      schema: {
        operationId: 'returnLeases',
        summary: 'Return leases',
        description:
          'Their data is removed for good. The answer has those that had not ended before.',
        tags,
        params: ofProject,
        body: Ref(ReturnLeasesBody),
        response: { 202: Ref(LeasesSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await returnLeases(context, callerOf(request), request.body)),
  );

  api.delete(
    LEASE,
    {
      schema: {
        operationId: 'returnLease',
        summary: 'Return a lease',
        description: 'Its data is removed for good.',
        tags,
        params: ofLease,
        response: { 202: Ref(LeasesSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await returnLease(context, callerOf(request), request.params.lease_id)),
  );
}
