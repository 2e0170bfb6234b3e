/** Backups of services in repositories, off the machine. */

/** The backups of a service in a repository. */
export type OffMachineState = {
  /** Newest first. */
  backups: { label: string; takenMs: number; type: 'full' | 'incr'; storageBytes: number }[];
  /** The first moment that the service can be restored to; null: none yet. */
  earliestMs: number | null;
  /** Every commit up to this moment is in the repository; null: none yet. */
  safeToMs: number | null;
  /**
   * Times that cannot be restored, since WAL was removed before the repository had it; `beforeMs`:
   * the backup that ended it, null: none yet.
   */
  gaps: { afterMs: number; beforeMs: number | null }[];
  /** WAL that is not in it yet; `oldestMs`: when the oldest of it was archived. */
  backlog: { files: number; bytes: number; oldestMs: number | null };
  /** Why the last attempt failed; null: it did not. */
  problem: string | null;
};

/** Backups in repositories, off this machine. */
export interface OffMachineBackups {
  /**
   * Sends what each repository does not have yet of a service, and removes what is too old there. A
   * problem of a repository is in its state.
   *
   * @returns the state in each repository, by its id, and whether there is more to send
   */
  ship(
    id: string,
    signal: AbortSignal,
  ): Promise<{ states: ReadonlyMap<string, OffMachineState>; more: boolean }>;
  /** The state in each repository, by its id, as of the last call of ship. */
  describe(id: string): Promise<ReadonlyMap<string, OffMachineState>>;
}
