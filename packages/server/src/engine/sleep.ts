/** Services whose servers stop while nobody uses them (docs/decisions/0109-sleep-and-wake.md). */
import type { ServiceSpec } from './spec.ts';

/** A session or another part of a server that keeps a service awake. */
export type Holder = Readonly<{
  kind: 'session' | 'prepared_transaction' | 'replication_slot' | 'autovacuum' | 'worker';
  /** The name of the application, the transaction, the slot or the worker. */
  name: string;
  user: string | null;
  database: string | null;
  /** The address of a client. */
  address: string | null;
  /** Since when, as ISO 8601; null: it is not known. */
  since: string | null;
  /** The state of a session, as pg_stat_activity has it; null: it is none. */
  state: string | null;
  /** Whether its last statement was LISTEN: it waits for notifications. */
  listens: boolean;
}>;

export interface Sleeping {
  /**
   * The services that may sleep and do not, by their ids: for how long nobody has sent anything to
   * them, in ms; null: a client is there, or waits for the server. @throws EngineUnavailable
   */
  awake(): Promise<ReadonlyMap<string, number | null>>;
  /**
   * Whether nothing in the server of a service keeps it awake. If so, the server writes what it
   * has not written yet, so that its stop is short. @throws EngineUnavailable
   */
  prepare(id: string): Promise<boolean>;
  /**
   * Stops the server of a service that nobody has used for so long. Clients that come meanwhile
   * wait, and have it started again.
   *
   * @returns whether it sleeps; false: it is used
   */
  fallAsleep(spec: ServiceSpec, idleMs: number): Promise<boolean>;
  /** The parts that keep a service awake; none: only the time does. @throws EngineUnavailable */
  holders(id: string): Promise<readonly Holder[]>;
}
