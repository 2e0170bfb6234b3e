/** Statuses and actions in words and colours, from the tables that the API uses. */
import { ALLOWED, refusal, type Action } from '@howdah/contract/actions';
import {
  ACCESS,
  denialOfChanges,
  denialOfKey,
  denialOfLease,
  permissionOfAction,
  PERMISSIONS,
  protectionOf,
  PURGE,
} from '@howdah/contract/permissions';
import {
  IS_TRANSITIONAL,
  LIVE_STATUSES,
  runsBeside,
  type LiveStatus,
} from '@howdah/contract/status';
import type { Environment, ServiceType } from '@howdah/contract/types';
import type { Me, Operation, Service } from './api.ts';
import type { Lease, ReplicaSet } from './api-project.ts';

/** Beside a size that has no room. */
export const NO_ROOM = 'more than the machine has';

export type Tone = 'good' | 'busy' | 'bad' | 'idle';

const LOOK: Record<LiveStatus, { tone: Tone; label: string }> = {
  QUEUED: { tone: 'busy', label: 'Queued' },
  CONFIGURING: { tone: 'busy', label: 'Configuring' },
  READY: { tone: 'good', label: 'Ready' },
  UNSTABLE: { tone: 'bad', label: 'Unstable' },
  PAUSING: { tone: 'busy', label: 'Pausing' },
  PAUSED: { tone: 'idle', label: 'Paused' },
  RESUMING: { tone: 'busy', label: 'Resuming' },
  UPGRADING: { tone: 'busy', label: 'Upgrading' },
  DELETING: { tone: 'busy', label: 'Deleting' },
};

/** The types of services by the names of the products. */
export const TYPE_NAMES: Record<ServiceType, string> = {
  TIMESCALEDB: 'TimescaleDB',
  POSTGRES: 'PostgreSQL',
  VECTOR: 'Vector',
};

/** A status of ours. The API's enumeration has two more, which it never sends. */
export const live = (status: Service['status']): LiveStatus =>
  LIVE_STATUSES.find((known) => known === status) ?? 'CONFIGURING';
export const lookOf = (status: Service['status']) => LOOK[live(status)];
export const isTransitional = (status: Service['status']): boolean => IS_TRANSITIONAL[live(status)];

/** Why a key may not make a change, of no service or of one that a key created; null: it may. */
export const whyReadOnly = (me: Me, createdBy?: string): string | null =>
  denialOfChanges(me, createdBy);

/** Why a key may not extend a lease, or return it before its end; null: it may. */
export const whyNotLease = (
  me: Me,
  { created_by: takenBy }: Pick<Lease, 'created_by'>,
  change: 'extend' | 'return',
): string | null =>
  denialOfKey(me, PERMISSIONS[ACCESS.extendLeases]) ??
  denialOfLease(
    { publicKey: me.public_key, role: me.role, forkOnly: me.fork_only === true },
    takenBy ?? null,
    change,
  );

/** Why a key may not purge a service, or a deleted one; null: it may. */
export const whyNotPurge = (me: Me, createdBy?: string): string | null =>
  denialOfKey(me, PURGE, { createdBy });

/** Why a key of the operator project may not change the installation; null: it may. */
export const whyNotOperate = (me: Me): string | null => denialOfKey(me, PERMISSIONS.operator);

type Subject = Pick<Service, 'status' | 'metadata' | 'read_replica_sets' | 'created_by'>;

/** The environment that protects a service. PROD: it is stopped or deleted by its name only. */
const protectionOfService = ({
  metadata,
  read_replica_sets: sets,
}: Pick<Subject, 'metadata' | 'read_replica_sets'>): Environment =>
  protectionOf(metadata.environment, sets);

/**
 * Why a key may not perform an action, whatever the status of the service; null: it may.
 *
 * @param set the read replica set of the action, if it is not the service
 */
export function whyDenied(
  action: Action,
  service: Subject,
  me: Me,
  set?: Pick<ReplicaSet, 'metadata'>,
): string | null {
  return denialOfKey(me, permissionOfAction(action), {
    environment:
      set?.metadata.environment ??
      // The tag of the service itself: those of its sets stay.
      (action === 'setEnvironment' ? service.metadata.environment : protectionOfService(service)),
    createdBy: service.created_by ?? null,
  });
}

/**
 * Why an action is not possible now, for this key or in this status, in the API's words; null: it
 * is.
 */
export function whyNot(
  action: Action,
  service: Subject,
  me: Me,
  set?: Pick<ReplicaSet, 'metadata'>,
): string | null {
  const denied = whyDenied(action, service, me, set);
  if (denied !== null) return denied;
  const status = live(service.status);
  return ALLOWED[status][action] === 'accept' ? null : refusal(action, status);
}

/** A problem of a service, and its remedy. */
export type Problem = { problem: string; remedy: string };

/** The problem of an UNSTABLE service, from its unfinished operation; null: it is not UNSTABLE. */
export function problemOf(
  { service_id: id, status }: Pick<Service, 'service_id' | 'status'>,
  operations: readonly Operation[],
): Problem | null {
  if (status !== 'UNSTABLE') return null;
  const open = operations.find(
    ({ service_id: of, finished, kind }) => of === id && finished === null && !runsBeside(kind),
  );
  if (open?.error !== undefined)
    return {
      problem: open.error,
      remedy:
        'Howdah tries again at least every 30 s. If the problem stays, ' +
        'read the service’s logs. The tab Backups restores its data, ' +
        'or forks its last snapshot.',
    };
  const step = open?.steps.findLast(({ finished }) => finished === null)?.name;
  return {
    problem:
      open?.kind === 'failover'
        ? 'The primary does not answer'
        : 'The server does not accept connections',
    remedy:
      open === undefined
        ? 'Howdah repairs it by itself within seconds. ' +
          'If the problem stays, read the service’s logs.'
        : `Wait: ${kindLabel(open.kind).toLowerCase()} in ` +
          `progress${step === undefined ? '' : ` (${step})`}.`,
  };
}

/** The words of an operation's kind, or of a call. */
export const kindLabel = (kind: string): string =>
  kind
    .replaceAll(/([a-z])([A-Z])/g, (_, before: string, after: string) => `${before} ${after}`)
    .split(' ')
    .map((word, index) =>
      index === 0
        ? word.charAt(0).toUpperCase() + word.slice(1)
        : /^([A-Z]{2}|Vpc$)/.test(word)
          ? word.toUpperCase()
          : word.toLowerCase(),
    )
    .join(' ');
