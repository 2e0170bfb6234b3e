/**
 * Notifications between transactions and control planes. They are hints: timers
 * make up for lost ones.
 */
import { type RawBuilder, sql } from 'kysely';
import type { Db } from './tables.ts';

/**
 * Payloads: the id of a service that is due; none for VPCs; the project of new events; the public
 * half of a changed key.
 */
export const CHANNELS = ['howdah_service', 'howdah_vpcs', 'howdah_event', 'howdah_key'] as const;

export type Channel = (typeof CHANNELS)[number];

export type OnNotification = (payload: string | null) => void;

/** Notifies the reconciler of a service, when the transaction commits. */
export async function notifyService(tx: Db, id: string): Promise<void> {
  await serviceNotification(id).execute(tx);
}

/** The statement of {@link notifyService}. */
export const serviceNotification = (id: string): RawBuilder<unknown> =>
  sql`select pg_notify('howdah_service', ${id})`;

/** Notifies the reconciler of VPCs, when the transaction commits. */
export async function notifyVpcs(tx: Db): Promise<void> {
  await sql`notify howdah_vpcs`.execute(tx);
}
