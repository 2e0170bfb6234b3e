/**
 * Keeps what is shown true: by the stream of events (`events.ts`), and by asking again, quickly while something is under way and nobody
 * tells, slowly otherwise. The one place that decides how; pages ask with these hooks and know nothing of it.
 */
import { HowdahError } from '@howdah/client';
import { isStreaming } from './events.ts';
import { isTransitional } from './status.ts';
import { QueryClient, useQuery, useQueryClient, type UseQueryOptions } from '@tanstack/react-query';
import { useParams } from '@tanstack/react-router';
import { usePrevious } from '@mantine/hooks';
import { useCallback, useEffect } from 'react';
import {
  backupsQuery,
  deletedQuery,
  meQuery,
  membersQuery,
  operationQuery,
  operationsQuery,
  regionsQuery,
  serviceQuery,
  servicesQuery,
  type Operation,
  type Service,
} from './api.ts';
import { setsQuery } from './api-project.ts';
import { useIsLost, watchReach } from './reach.ts';
import { useMe } from './session.ts';

const QUICK_MS = 600;
const SLOW_MS = 4000;
/** An estimate need not be newer. */
const REMAINING_MS = 2000;
/** While events come: figures change without one. */
const STREAMING_MS = 15_000;
/** A list of a thousand services is half a megabyte: asked for less often the longer it is. */
const PER_SERVICE_MS = 10;

export const queryClient: QueryClient = new QueryClient({
  queryCache: watchReach(() => void queryClient.invalidateQueries({ queryKey: meQuery.queryKey })),
  defaultOptions: {
    queries: {
      // The control plane of one's own machine is reached without a network, too.
      networkMode: 'always',
      // What the API refused stays refused; a connection that broke is tried again by the next look.
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

export function useServices() {
  const { project } = useMe();
  return useQuery({
    ...servicesQuery(project.id),
    refetchInterval: ({ state: { data } }) => {
      const services = data ?? [];
      const atLeast = services.length * PER_SERVICE_MS;
      return Math.max(atLeast, paceMs(services.some(isBusy)));
    },
  });
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
    // The list has it already, mostly: a page begins with that.
    placeholderData: () =>
      cache
        .getQueryData(servicesQuery(project.id).queryKey)
        ?.find(({ service_id: known }) => known === id),
    refetchInterval: ({ state: { data, error } }) => (isGone(error) ? false : paceMs(isBusy(data))),
  });
}

/** The same, for the pages in the frame of a service, which shows nothing while there is none. */
export function useThisService(): Service {
  const { data } = useService();
  if (data === undefined) throw new Error('there is no service');
  return data;
}

/** Whether what is asked for does not exist. */
export const isGone = (error: unknown): boolean =>
  error instanceof HowdahError && error.status === 404;

/** What belongs to the service of the address, asked for again at the same pace as the service. */
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

/** About how long an operation will still take, from past ones of its kind; undefined: it has ended, or nobody can tell. */
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

/** How far the servers are behind changes all the time, and no event tells. */
export function useMembers() {
  const { project } = useMe();
  return useQuery({ ...membersQuery(project.id, useServiceId()), refetchInterval: QUICK_MS });
}
export function useReplicaSets() {
  const { project } = useMe();
  return useQuery({ ...setsQuery(project.id, useServiceId()), refetchInterval: QUICK_MS });
}
export const useBackups = () => useOfService(backupsQuery);

export function useRegions() {
  const { project } = useMe();
  return useQuery(regionsQuery(project.id));
}

export function useDeleted() {
  const { project } = useMe();
  return useQuery({ ...deletedQuery(project.id), refetchInterval: SLOW_MS });
}

/** Whether the control plane does not answer. While it does not, this asks once a second, and then for everything that is shown. */
export function useLost(): boolean {
  const lost = useIsLost();
  const lookAgain = useLookAgain();
  useQuery({ ...meQuery, refetchInterval: lost ? 1000 : false });
  const was = usePrevious(lost);
  useEffect(() => {
    if (was === true && !lost) void lookAgain();
  }, [was, lost, lookAgain]);
  return lost;
}

/** Looks again at once: called after a change. */
export function useLookAgain() {
  const cache = useQueryClient();
  return useCallback(
    () => cache.invalidateQueries({ predicate: ({ queryKey }) => queryKey[0] !== 'me' }),
    [cache],
  );
}
