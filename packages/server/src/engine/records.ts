/**
 * An engine records its primaries in this part of the metadata database, with the ports of its
 * servers, and reports failovers by it at once. Nobody but the engine reads it.
 */
import type { OperationStep } from '@howdah/contract';

/** A server behind a gateway: its number, and its port of the loopback address. */
export type ServerPort = { readonly n: number; readonly port: number };

/** The recorded placement of a service or a read replica set at one moment. */
export type ClusterRecord = {
  /** The number of the primary: 0 until another one is recorded. */
  readonly primary: number;
  /** The servers that have a port, by number. */
  readonly servers: readonly ServerPort[];
  /** Whether another primary was asked for, and none was recorded since. */
  readonly switchover: boolean;
};

export type ClusterRecords = {
  /** @returns null: the service is gone */
  read: (id: string) => Promise<ClusterRecord | null>;
  /**
   * Reserves a port for each of these servers that has none.
   *
   * @param isUsable whether a port that nothing has reserved can be used
   * @returns all servers that have a port
   * @throws NoPortLeft; then none of them has got one
   */
  reserveServers: (
    id: string,
    numbers: readonly number[],
    isUsable: (port: number) => Promise<boolean>,
  ) => Promise<readonly ServerPort[]>;
  /** Releases the ports of servers that do not exist any more. */
  releaseServers: (id: string, numbers: readonly number[]) => Promise<void>;
  /** Shows users that the primary died, and that another is about to take over. */
  begin: (id: string) => Promise<void>;
  /**
   * Records another server as the primary, if `from` is the recorded one. This also satisfies a
   * requested switchover.
   *
   * @returns the recorded primary from now on; null: the service is gone
   */
  recordPrimary: (id: string, from: number, to: number) => Promise<number | null>;
  /**
   * Shows users the steps that were made.
   *
   * @param why no standby took over; null: the service accepts writes again
   */
  end: (id: string, steps: readonly OperationStep[], why: string | null) => Promise<void>;
  /** Removes the request for a drill. @returns whether there was one */
  takeDrill: (id: string) => Promise<boolean>;
};

/**
 * The numbers of the servers of a service with replicas: the primary always, then the existing
 * ones, then the lowest that are free. In their order.
 */
export function chooseServers(
  primary: number,
  existing: readonly number[],
  count: number,
): number[] {
  const lowest = Array.from({ length: count + existing.length + 1 }, (_, n) => n);
  const inOrder = existing.toSorted((a, b) => a - b);
  return [...new Set([primary, ...inOrder, ...lowest])].slice(0, count).toSorted((a, b) => a - b);
}

/** The numbers of the nodes of a read replica set. */
export function numberNodes(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index + 1);
}

// An engine keeps server logs in this part of the metadata database. Nobody but the engine reads
// it.

/** Some lines of the log of a server, from one pod. */
export type KeptPart = Readonly<{
  id: string;
  /** The name of the pod here: another pod of the same server has another one. */
  pod: string;
  /** The times of the first and the last line: ns since the epoch, with 19 digits. */
  from: string;
  until: string;
}>;

export type KeptLogs = Readonly<{
  /** The parts of the log of a server, newest first. */
  list: (serviceId: string, server: number) => Promise<readonly KeptPart[]>;
  /** The lines of parts, by their ids, as they were added; those removed meanwhile are missing. */
  read: (ids: readonly string[]) => Promise<ReadonlyMap<string, Buffer>>;
  /**
   * Adds a part, and removes the oldest ones of the service beyond what is kept of each.
   *
   * @returns false: the service is gone, or lines of this pod that are as new are kept already
   */
  add: (
    serviceId: string,
    server: number,
    part: Omit<KeptPart, 'id'> & Readonly<{ lines: Buffer }>,
  ) => Promise<boolean>;
}>;
