/** Statuses and actions in words and colours, from the tables that the API uses. */
import { ALLOWED, refusal, type Action } from '@howdah/contract/actions';
import {
  denialOfChanges,
  denialOfKey,
  permissionOfAction,
  protectionOf,
  PURGE,
} from '@howdah/contract/permissions';
import { IS_TRANSITIONAL, LIVE_STATUSES, type LiveStatus } from '@howdah/contract/status';
import type { ServiceType } from '@howdah/contract/types';
import type { Me, Operation, Service } from './api.ts';
import type { ReplicaSet } from './api-project.ts';

export type Tone = 'good' | 'busy' | 'bad' | 'idle';

const LOOK: Record<LiveStatus, { tone: Tone; label: string }> = {
  QUEUED: { tone: 'busy', label: 'Queued' },
  CONFIGURING: { tone: 'busy', label: 'Configuring' },
  READY: { tone: 'good', label: 'Ready' },
  UNSTABLE: { tone: 'bad', label: 'Unstable' },
  PAUSING: { tone: 'busy', label: 'Pausing' },
  PAUSED: { tone: 'idle', label: 'Paused' },
  RESUMING: { tone: 'busy', label: 'Resuming' },
  UPGRADING: { tone: 'busy', label: 'Resizing' },
  DELETING: { tone: 'busy', label: 'Deleting' },
};

/** Types of services by the names that people know. */
export const TYPE_NAMES: Record<ServiceType, string> = {
  TIMESCALEDB: 'TimescaleDB',
  POSTGRES: 'PostgreSQL',
  VECTOR: 'Vector',
};

/** A status of ours; the API's enumeration has two more, which it never sends. */
export const live = (status: Service['status']): LiveStatus =>
  LIVE_STATUSES.find((known) => known === status) ?? 'CONFIGURING';
export const lookOf = (status: Service['status']) => LOOK[live(status)];
export const isTransitional = (status: Service['status']): boolean => IS_TRANSITIONAL[live(status)];

/** Why a key may not make a change that is about no service, or about one that a key created; null: it may. */
export const whyReadOnly = (me: Me, createdBy?: string): string | null =>
  denialOfChanges(me, createdBy);

/** Why a key may not remove a service, or a deleted one, for good; null: it may. */
export const whyNotPurge = (me: Me, createdBy?: string): string | null =>
  denialOfKey(me, PURGE, { createdBy });

/**
 * Why an action cannot be had now, in the words of the API; null: it can.
 *
 * @param set the read replica set that the action is on, if it is not the service
 */
export function whyNot(
  action: Action,
  service: Pick<Service, 'status' | 'metadata' | 'read_replica_sets' | 'created_by'>,
  me: Me,
  set?: Pick<ReplicaSet, 'metadata'>,
): string | null {
  const environment =
    set?.metadata.environment ??
    protectionOf(service.metadata.environment, service.read_replica_sets);
  const denied = denialOfKey(me, permissionOfAction(action), {
    environment,
    createdBy: service.created_by ?? null,
  });
  if (denied !== null) return denied;
  const status = live(service.status);
  return ALLOWED[status][action] === 'accept' ? null : refusal(action, status);
}

/** What a service is doing, or why it is not well: from its operation under way. */
export function reasonOf(service: Service, operations: readonly Operation[]): string | null {
  const open = operations.find(
    ({ finished, kind }) => finished === null && kind !== 'verifyBackup',
  );
  if (open === undefined) return null;
  if (open.error !== undefined) return open.error;
  const step = open.steps.findLast(({ finished }) => finished === null);
  return isTransitional(service.status) || service.status === 'UNSTABLE'
    ? (step?.name ?? null)
    : null;
}

/** The name of a kind of operation: its words. */
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
