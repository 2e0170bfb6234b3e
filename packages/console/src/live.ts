/**
 * Keeps the shown data current: the stream of events (`events.ts`) says what to read again, and
 * polling does the rest, often while something is in progress and no events come, rarely otherwise.
 * Pages read through these hooks only.
 */
import { HowdahError } from '@howdah/client';
import type { RegionalAction } from '@howdah/contract/actions';
import { isStreaming } from './events.ts';
import { isTransitional, problemOf, type Problem } from './status.ts';
import { QueryClient, useQuery, useQueryClient, type UseQueryOptions } from '@tanstack/react-query';
import { useParams } from '@tanstack/react-router';
import { usePrevious } from '@mantine/hooks';
import { useCallback, useEffect, useMemo } from 'react';
import {
  backupsQuery,
  certificatesQuery,
  deletedQuery,
  extensionsQuery,
  meQuery,
  membersQuery,
  operationQuery,
  operationsQuery,
  regionsQuery,
  runningQuery,
  serviceQuery,
  servicesQuery,
  type Operation,
  type Service,
  type Region,
} from './api.ts';
import { keysQuery, setsQuery, vpcsQuery } from './api-project.ts';
import { useIsLost, watchReach } from './reach.ts';
import { useMe } from './session.ts';

const QUICK_MS = 600;
const SLOW_MS = 4000;
/** Often enough for an estimate. */
const REMAINING_MS = 2000;
/** While events come, for figures that change without an event. */
const STREAMING_MS = 15_000;
/** A list of a thousand services is half a megabyte, so long lists are read less often. */
const PER_SERVICE_MS = 10;

export const queryClient: QueryClient = new QueryClient({
  queryCache: watchReach(() => void queryClient.invalidateQueries({ queryKey: meQuery.queryKey })),
  defaultOptions: {
    queries: {
      // A control plane on the same machine is reached without a network.
      networkMode: 'always',
      // A refusal stays one; the next poll tries again after a lost connection.
      retry: false,
      refetchOnWindowFocus: true,
      gcTime: 10 * 60_000,
    },
    mutations: { networkMode: 'always' },
  },
});

const paceMs = (busy: boolean): number =>
  isStreaming() ? STREAMING_MS : busy ? QUICK_MS : SLOW_MS;
const isBusy = (service: Service | undefined): boolean =>
  service !== undefined && isTransitional(service.status);
const isOpen = ({ finished }: Operation): boolean => finished === null;

/** All parts of a page share one answer, which events and polling keep current. */
const sharedServices = (project: string) => ({ ...servicesQuery(project), staleTime: SLOW_MS });

export function useServices() {
  const { project } = useMe();
  return useQuery({
    ...sharedServices(project.id),
    refetchInterval: ({ state: { data } }) => {
      const services = data ?? [];
      const atLeast = services.length * PER_SERVICE_MS;
      return Math.max(atLeast, paceMs(services.some(isBusy)));
    },
  });
}

/** The names of services by id; deleted services keep theirs while they can be restored. */
export function useServiceNames(): ReadonlyMap<string, string> {
  const { project } = useMe();
  const { data: services } = useQuery(sharedServices(project.id));
  const { data: deleted } = useQuery({ ...deletedQuery(project.id), staleTime: SLOW_MS });
  return useMemo(
    () =>
      new Map([...(deleted ?? []), ...(services ?? [])].map((one) => [one.service_id, one.name])),
    [services, deleted],
  );
}

/** The name of a VPC, or its id if it has no known name. */
export function useVpcName(id: string | undefined): string {
  const { project } = useMe();
  const { data: vpcs } = useQuery({ ...vpcsQuery(project.id), enabled: id !== undefined });
  return vpcs?.find((vpc) => vpc.id === id)?.name ?? id ?? '';
}

/** The names of keys by their public half. */
export function useKeyNames(): ReadonlyMap<string, string> {
  const { project } = useMe();
  const { data: keys } = useQuery({ ...keysQuery(project.id), staleTime: SLOW_MS });
  return useMemo(() => new Map((keys ?? []).map((key) => [key.public_key, key.name])), [keys]);
}

/** Whether names of services and keys are read: a table drawn before would change its height. */
export function useAreNamesRead(): boolean {
  const { project } = useMe();
  const services = useQuery(sharedServices(project.id));
  const deleted = useQuery({ ...deletedQuery(project.id), staleTime: SLOW_MS });
  const keys = useQuery({ ...keysQuery(project.id), staleTime: SLOW_MS });
  return !services.isPending && !deleted.isPending && !keys.isPending;
}

/** The problem of each UNSTABLE service, by its id. */
export function useProblems(
  services: readonly Service[],
): { service: Service; problem: Problem }[] {
  const { project } = useMe();
  const unstable = services.filter(({ status }) => status === 'UNSTABLE');
  const { data: operations } = useQuery({
    ...runningQuery(project.id),
    enabled: unstable.length > 0,
    refetchInterval: SLOW_MS,
  });
  return unstable.flatMap((service) => {
    const problem = problemOf(service, operations ?? []);
    return problem === null ? [] : [{ service, problem }];
  });
}

/** The problem of the service that the address names; null: it is not UNSTABLE. */
export function useProblem(): Problem | null {
  const { data: service } = useService();
  const { data: operations } = useOperations();
  return service === undefined ? null : problemOf(service, operations ?? []);
}

export function useServiceId(): string {
  return useParams({ from: '/shell/services/$id' }).id;
}

/** The service that the address names. */
export function useService() {
  const { project } = useMe();
  const id = useServiceId();
  const cache = useQueryClient();
  return useQuery({
    ...serviceQuery(project.id, id),
    // The parts of a page share one answer.
    staleTime: QUICK_MS,
    // The list usually has the service already: the page begins with that.
    placeholderData: () =>
      cache
        .getQueryData(servicesQuery(project.id).queryKey)
        ?.find(({ service_id: known }) => known === id),
    refetchInterval: ({ state: { data, error } }) => (isGone(error) ? false : paceMs(isBusy(data))),
  });
}

/**
 * {@link useService} for the pages inside the frame of a service, which are shown once it is read.
 */
export function useThisService(): Service {
  const { data } = useService();
  if (data === undefined) throw new Error('the service is not read yet');
  return data;
}

/** Whether an error says that something does not exist. */
export const isGone = (error: unknown): boolean =>
  error instanceof HowdahError && error.status === 404;

/** Data of the service that the address names, read as often as the service itself. */
function useOfService<T, K extends readonly unknown[]>(
  options: (project: string, id: string) => UseQueryOptions<T, Error, T, K>,
  busy: (data: T | undefined) => boolean = () => false,
) {
  const { project } = useMe();
  const { data: service } = useService();
  return useQuery<T, Error, T, K>({
    ...options(project.id, useServiceId()),
    refetchInterval: ({ state: { data } }) => paceMs(busy(data) || isBusy(service)),
  });
}

export const useOperations = () =>
  useOfService(operationsQuery, (operations) => operations?.some(isOpen) === true);

/**
 * The estimated seconds until an operation ends; undefined: it has ended, or there is no estimate.
 */
export function useRemainingSeconds(operation: Operation): number | undefined {
  const { project } = useMe();
  const goesOn = isOpen(operation);
  const { data } = useQuery({
    ...operationQuery(project.id, operation.id),
    enabled: goesOn,
    refetchInterval: REMAINING_MS,
  });
  return goesOn ? data?.remaining_seconds : undefined;
}

/** The lag of the servers changes all the time, and no event reports it. */
export function useMembers() {
  const { project } = useMe();
  return useQuery({ ...membersQuery(project.id, useServiceId()), refetchInterval: QUICK_MS });
}
export function useReplicaSets() {
  const { project } = useMe();
  return useQuery({ ...setsQuery(project.id, useServiceId()), refetchInterval: QUICK_MS });
}
export const useBackups = () => useOfService(backupsQuery);
export const useCertificates = () => useOfService(certificatesQuery);
export const useExtensions = () => useOfService(extensionsQuery);

export function useRegions() {
  const { project } = useMe();
  return useQuery(regionsQuery(project.id));
}

/** Finds a region by the name that a service or VPC shows: its code, or an alias. */
export function useFindRegion(): (name: string) => Region | undefined {
  const { data: regions = [] } = useRegions();
  return (name) =>
    regions.find(({ code }) => code === name) ??
    regions.find(({ aliases }) => aliases.includes(name));
}

/** Whether a service is on Kubernetes, which has no repositories of backups. */
export const useIsOnKubernetes = ({ region_code: region }: Pick<Service, 'region_code'>): boolean =>
  useFindRegion()(region)?.engine === 'kubernetes';

/** Whether a service uses no more CPU than its size, by itself or as its region has it. */
export function useIsCpuBound({ region_code: region, resources }: Service): boolean {
  const found = useFindRegion()(region);
  return resources[0]?.spec.cpu_bound ?? found?.cpu_bound ?? false;
}

/** The installed versions of PostgreSQL that are newer than that of a service, newest first. */
export function useNewerVersions({
  pg_version: own,
  region_code: region,
  service_type: type,
}: Pick<Service, 'pg_version' | 'region_code' | 'service_type'>) {
  const offer = useFindRegion()(region)?.service_types.find((one) => one.service_type === type);
  return (offer?.versions ?? []).filter(
    ({ available, pg_version: major }) => available && own !== undefined && major > own,
  );
}

/**
 * Why an action is not possible in the region of a service, in the words of its engine; null: it
 * is.
 */
export function useWhyImpossible({
  region_code: region,
}: Pick<Service, 'region_code'>): (action: RegionalAction) => string | null {
  const actions = useFindRegion()(region)?.actions;
  return (action) => {
    const found = actions?.find((one) => one.action === action);
    return found?.available === false ? (found.reason ?? 'not possible in this region') : null;
  };
}

/** Whether there is more than one region, so that each has to be named. */
export function useHasRegions(): boolean {
  return (useRegions().data?.length ?? 0) > 1;
}

export function useDeleted() {
  const { project } = useMe();
  return useQuery({ ...deletedQuery(project.id), refetchInterval: SLOW_MS });
}

/**
 * Whether the control plane does not answer. It is then asked once a second; when it answers, all
 * shown data is read again.
 */
export function useLost(): boolean {
  const lost = useIsLost();
  const refresh = useRefresh();
  useQuery({ ...meQuery, refetchInterval: lost ? 1000 : false });
  const was = usePrevious(lost);
  useEffect(() => {
    if (was === true && !lost) void refresh();
  }, [was, lost, refresh]);
  return lost;
}

/** Reads all shown data again: called after a change. */
export function useRefresh() {
  const cache = useQueryClient();
  return useCallback(
    () => cache.invalidateQueries({ predicate: ({ queryKey }) => queryKey[0] !== 'me' }),
    [cache],
  );
}
