/**
 * The calls of a project: keys, limits, webhooks, the audit log, VPCs, allow lists, leases,
 * exporters; those of a service that came with them; and the repositories and clusters of the
 * installation.
 */
import type { Schemas } from '@howdah/client';
import type { Action } from '@howdah/contract/actions';
import type { SetPurpose } from '@howdah/contract/types';
import type { AuditOutcome } from '@howdah/contract/values';
import { queryOptions } from '@tanstack/react-query';
import { askName } from './ask-name.ts';
import { body, client, exactClient } from './api.ts';

export type Key = Schemas['Key'];
export type ServiceUsage = Schemas['ServiceUsage'];
export type Webhook = Schemas['Webhook'];
export type Delivery = Schemas['Delivery'];
export type AuditEntry = Schemas['AuditEntry'];
export type Vpc = Schemas['Vpc'];
export type AllowList = Schemas['AllowList'];
export type Lease = Schemas['Lease'];
export type Exporter = Schemas['Exporter'];
export type ExporterConfig = Schemas['CreateExporter']['config'];
export type Repository = Schemas['Repository'];
export type RecoveryKit = Schemas['RecoveryKit'];
export type CreateRepository = Schemas['CreateRepository'];
export type Finding = Schemas['Finding'];
export type Cluster = Schemas['KubernetesRegion'];
export type AddRegion = Schemas['AddRegion'];
export type SetImages = Schemas['SetImages'];
export type SetObjectStore = Schemas['SetObjectStore'];
export type Peering = Schemas['Peering'];
export type ReplicaSet = Schemas['ReadReplicaSetDetail'];

const ofProject = (project: string) => ({ path: { project_id: project } });

// ── the machine ──────────────────────────────────────────────────────────────────────────────────

export const doctorQuery = queryOptions({
  queryKey: ['doctor'],
  queryFn: ({ signal }) => body(client.GET('/doctor', { signal })),
});

// ── regions on Kubernetes ────────────────────────────────────────────────────────────────────────

export const clustersQuery = queryOptions({
  queryKey: ['clusters'],
  queryFn: ({ signal }) => body(client.GET('/regions', { signal })),
});

export const clusterDoctorQuery = (code: string) =>
  queryOptions({
    queryKey: ['clusters', code, 'doctor'],
    queryFn: ({ signal }) =>
      body(client.GET('/regions/{region_code}/doctor', { params: ofCluster(code), signal })),
    // Another cluster may get the code.
    gcTime: 0,
  });

export const addRegion = (request: AddRegion) => client.POST('/regions', { body: request });

export const removeRegion = (code: string) =>
  client.DELETE('/regions/{region_code}', { params: ofCluster(code) });

export const setImages = (code: string, request: SetImages) =>
  client.PUT('/regions/{region_code}/images', { params: ofCluster(code), body: request });

export const setObjectStore = (code: string, request: SetObjectStore) =>
  client.PUT('/regions/{region_code}/objectStore', { params: ofCluster(code), body: request });

const ofCluster = (code: string) => ({ path: { region_code: code } });

// ── keys, limits ─────────────────────────────────────────────────────────────────────────────────

export const keysQuery = (project: string) =>
  queryOptions({
    queryKey: ['keys', project],
    queryFn: ({ signal }) =>
      body(client.GET('/projects/{project_id}/keys', { params: ofProject(project), signal })),
  });

export async function createKey(project: string, request: Schemas['CreateKey']): Promise<Key> {
  const answer = await body(
    client.POST('/projects/{project_id}/keys', { params: ofProject(project), body: request }),
  );
  if (!('public_key' in answer))
    throw new Error('nothing was created: this key is for dry runs only');
  return answer;
}

export const revokeKey = (project: string, publicKey: string) =>
  client.DELETE('/projects/{project_id}/keys/{public_key}', {
    params: { path: { project_id: project, public_key: publicKey } },
  });

export const projectQuery = (project: string) =>
  queryOptions({
    queryKey: ['project', project],
    queryFn: ({ signal }) =>
      body(client.GET('/projects/{project_id}', { params: ofProject(project), signal })),
  });

export const usageQuery = (project: string) =>
  queryOptions({
    queryKey: ['usage', project],
    queryFn: ({ signal }) =>
      body(client.GET('/projects/{project_id}/usage', { params: ofProject(project), signal })),
  });

// ── logins of programs ───────────────────────────────────────────────────────────────────────────

export const deviceQuery = (code: string) =>
  queryOptions({
    queryKey: ['device', code],
    queryFn: ({ signal }) =>
      body(client.POST('/auth/device/find', { body: { user_code: code }, signal })),
    retry: false,
    staleTime: Infinity,
    gcTime: 0,
  });

export const startDevice = (request: Schemas['StartLogin']) =>
  body(client.POST('/auth/device', { body: request }));

export async function approveDevice(request: Schemas['ApproveLogin']): Promise<void> {
  await client.POST('/auth/device/approve', { body: request });
}

export async function denyDevice(code: string): Promise<void> {
  await client.POST('/auth/device/deny', { body: { user_code: code } });
}

// ── webhooks ─────────────────────────────────────────────────────────────────────────────────────

export const webhooksQuery = (project: string) =>
  queryOptions({
    queryKey: ['webhooks', project],
    queryFn: ({ signal }) =>
      body(client.GET('/projects/{project_id}/webhooks', { params: ofProject(project), signal })),
  });

export async function createWebhook(
  project: string,
  request: Schemas['CreateWebhook'],
): Promise<Webhook> {
  const answer = await body(
    client.POST('/projects/{project_id}/webhooks', { params: ofProject(project), body: request }),
  );
  if (!('url' in answer)) throw new Error('nothing was created: this key is for dry runs only');
  return answer;
}

export function webhookCalls(project: string, id: string) {
  const params = { path: { project_id: project, webhook_id: id } };
  return {
    delete: () => client.DELETE('/projects/{project_id}/webhooks/{webhook_id}', { params }),
    test: async (): Promise<Schemas['WebhookTest']> => {
      const answer = await body(
        client.POST('/projects/{project_id}/webhooks/{webhook_id}/test', { params }),
      );
      if (!('delivered' in answer))
        throw new Error('nothing was sent: this key is for dry runs only');
      return answer;
    },
    redeliver: (delivery: string) =>
      client.POST(
        '/projects/{project_id}/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver',
        {
          params: { path: { ...params.path, delivery_id: delivery } },
        },
      ),
  };
}

export const deliveriesQuery = (project: string, id: string) =>
  queryOptions({
    queryKey: ['webhooks', project, id, 'deliveries'],
    queryFn: ({ signal }) =>
      body(
        client.GET('/projects/{project_id}/webhooks/{webhook_id}/deliveries', {
          params: { path: { project_id: project, webhook_id: id }, query: { limit: '50' } },
          signal,
        }),
      ),
  });

// ── audit log ────────────────────────────────────────────────────────────────────────────────────

export type AuditFilter = { outcome: AuditOutcome | null };

/** A page, newest first, and the cursor of the next; undefined: it was the last. */
export async function readAudit(
  project: string,
  { outcome }: AuditFilter,
  cursor: string,
  signal: AbortSignal,
) {
  const query = {
    limit: '100',
    ...(outcome === null ? {} : { outcome }),
    ...(cursor === '' ? {} : { cursor }),
  };
  const { data, response } = await client.GET('/projects/{project_id}/audit', {
    params: { ...ofProject(project), query },
    signal,
  });
  return { entries: data ?? [], next: nextCursor(response) };
}

/** The cursor in a `Link` header of the next page. */
function nextCursor(response: Response): string | undefined {
  const link = /<([^>]+)>;\s*rel="?next"?/.exec(response.headers.get('Link') ?? '')?.[1];
  return link === undefined
    ? undefined
    : (new URL(link, response.url).searchParams.get('cursor') ?? undefined);
}

// ── VPCs ─────────────────────────────────────────────────────────────────────────────────────────

export const vpcsQuery = (project: string) =>
  queryOptions({
    queryKey: ['vpcs', project],
    queryFn: ({ signal }) =>
      body(client.GET('/projects/{project_id}/vpcs', { params: ofProject(project), signal })),
  });

export type VpcWithPeerings = Vpc & { peerings: Peering[] };

/** The VPCs, each with its peerings: drawn together. */
export const networksQuery = (project: string) =>
  queryOptions({
    queryKey: ['vpcs', project, 'peerings'],
    queryFn: async ({ signal }): Promise<VpcWithPeerings[]> => {
      const vpcs = await body(
        client.GET('/projects/{project_id}/vpcs', { params: ofProject(project), signal }),
      );
      const peeringsOf = async ({ id }: Vpc): Promise<Peering[]> => {
        const path = { project_id: project, vpc_id: id };
        return body(
          client.GET('/projects/{project_id}/vpcs/{vpc_id}/peerings', { params: { path }, signal }),
        );
      };
      return Promise.all(vpcs.map(async (vpc) => ({ ...vpc, peerings: await peeringsOf(vpc) })));
    },
  });

export const createVpc = (project: string, request: Schemas['CreateVpc']) =>
  client.POST('/projects/{project_id}/vpcs', { params: ofProject(project), body: request });

export function vpcCalls(project: string, id: string) {
  const params = { path: { project_id: project, vpc_id: id } };
  return {
    delete: () => client.DELETE('/projects/{project_id}/vpcs/{vpc_id}', { params }),
    peer: (request: Schemas['CreatePeering']) =>
      client.POST('/projects/{project_id}/vpcs/{vpc_id}/peerings', { params, body: request }),
    endPeering: (peering: string) =>
      client.DELETE('/projects/{project_id}/vpcs/{vpc_id}/peerings/{peering_id}', {
        params: { path: { ...params.path, peering_id: peering } },
      }),
  };
}

// ── allow lists ──────────────────────────────────────────────────────────────────────────────────

export const allowListsQuery = (project: string) =>
  queryOptions({
    queryKey: ['allow-lists', project],
    queryFn: ({ signal }) =>
      body(
        client.GET('/projects/{project_id}/allow-lists', { params: ofProject(project), signal }),
      ),
  });

export const createAllowList = (project: string, request: Schemas['CreateAllowList']) =>
  client.POST('/projects/{project_id}/allow-lists', { params: ofProject(project), body: request });

export function allowListCalls(project: string, id: string) {
  const params = { path: { project_id: project, allow_list_id: id } };
  return {
    change: (request: Schemas['UpdateAllowList']) =>
      client.PATCH('/projects/{project_id}/allow-lists/{allow_list_id}', { params, body: request }),
    delete: () => client.DELETE('/projects/{project_id}/allow-lists/{allow_list_id}', { params }),
  };
}

// ── leases ───────────────────────────────────────────────────────────────────────────────────────

export const leasesQuery = (project: string) =>
  queryOptions({
    queryKey: ['leases', project],
    queryFn: ({ signal }) =>
      body(client.GET('/projects/{project_id}/leases', { params: ofProject(project), signal })),
  });

export function leaseCalls(project: string, id: string) {
  const path = '/projects/{project_id}/leases';
  return {
    extend: (seconds: number) =>
      client.POST(`${path}/extend`, {
        params: ofProject(project),
        body: { lease_ids: [id], ttl_seconds: seconds },
      }),
    return: () =>
      client.DELETE(`${path}/{lease_id}`, {
        params: { path: { project_id: project, lease_id: id } },
      }),
  };
}

// ── exporters ────────────────────────────────────────────────────────────────────────────────────

export const exportersQuery = (project: string) =>
  queryOptions({
    queryKey: ['exporters', project],
    queryFn: ({ signal }) =>
      body(client.GET('/projects/{project_id}/exporters', { params: ofProject(project), signal })),
  });

export const createExporter = (project: string, request: Schemas['CreateExporter']) =>
  client.POST('/projects/{project_id}/exporters', { params: ofProject(project), body: request });

export function exporterCalls(project: string, id: string) {
  const of = (service: string) => ({
    params: { path: { project_id: project, service_id: service } },
    body: { exporter_id: id },
  });
  return {
    delete: () =>
      client.DELETE('/projects/{project_id}/exporters/{exporter_id}', {
        params: { path: { project_id: project, exporter_id: id } },
      }),
    attach: (service: string) =>
      client.POST('/projects/{project_id}/services/{service_id}/attachToExporter', of(service)),
    detach: (service: string) =>
      client.POST('/projects/{project_id}/services/{service_id}/detachFromExporter', of(service)),
  };
}

// ── repositories ─────────────────────────────────────────────────────────────────────────────────

export const repositoriesQuery = queryOptions({
  queryKey: ['repositories'],
  queryFn: ({ signal }) => body(client.GET('/repositories', { signal })),
});

export async function createRepository(request: CreateRepository): Promise<Repository> {
  const answer = await body(client.POST('/repositories', { body: request }));
  if (!('location' in answer)) throw new Error('nothing was added: this key is for dry runs only');
  return answer;
}

export function repositoryCalls(id: string) {
  const params = { path: { repository_id: id } };
  return {
    check: () => client.POST('/repositories/{repository_id}/check', { params }),
    delete: () => client.DELETE('/repositories/{repository_id}', { params }),
    readKit: async (): Promise<RecoveryKit> => {
      const answer = await body(
        exactClient.POST('/repositories/{repository_id}/recoveryKit', { params }),
      );
      if (!('passphrase' in answer))
        throw new Error('there is no kit: this key is for dry runs only');
      return answer;
    },
  };
}

// ── read replica sets ────────────────────────────────────────────────────────────────────────────

export const setsQuery = (project: string, id: string) =>
  queryOptions({
    queryKey: ['service', id, 'sets'],
    queryFn: async ({ signal }) => {
      const path = { project_id: project, service_id: id };
      const sets = await body(
        client.GET('/projects/{project_id}/services/{service_id}/replicaSets', {
          params: { path },
          signal,
        }),
      );
      return Promise.all(
        sets.map(({ id: set }) =>
          body(
            client.GET(
              '/projects/{project_id}/services/{service_id}/replicaSets/{replica_set_id}',
              {
                params: { path: { ...path, replica_set_id: set } },
                signal,
              },
            ),
          ),
        ),
      );
    },
  });

/** The calls of read replica sets. Those that a PROD set is protected from ask for its name. */
export function setCalls(project: string, service: string) {
  const path = { project_id: project, service_id: service };
  const of = ({ id }: ReplicaSet) => ({ params: { path: { ...path, replica_set_id: id } } });
  const asking = async (action: Action, set: ReplicaSet) => {
    const { name, metadata } = set;
    const query = await askName(action, { name, environment: metadata.environment });
    return { params: { ...of(set).params, query } };
  };
  const at = '/projects/{project_id}/services/{service_id}/replicaSets/{replica_set_id}';
  return {
    create: (request: Schemas['CreateReadReplicaSet']) =>
      client.POST('/projects/{project_id}/services/{service_id}/replicaSets', {
        params: { path },
        body: request,
      }),
    delete: async (set: ReplicaSet) => client.DELETE(at, await asking('deleteReplicaSet', set)),
    resize: async (set: ReplicaSet, cpuMillis: number) =>
      client.POST(`${at}/resize`, {
        ...(await asking('changeReplicaSet', set)),
        body: { cpu_millis: String(cpuMillis) },
      }),
    setPurpose: (set: ReplicaSet, purpose: SetPurpose) =>
      client.POST(`${at}/setPurpose`, { ...of(set), body: { purpose } }),
    setPooler: async (set: ReplicaSet, wanted: boolean) =>
      wanted
        ? client.POST(`${at}/enablePooler`, of(set))
        : client.POST(`${at}/disablePooler`, await asking('changeReplicaSet', set)),
  };
}
