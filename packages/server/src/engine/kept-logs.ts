/**
 * An engine keeps server logs in this part of the metadata database. Nobody but the engine reads
 * it.
 */

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
