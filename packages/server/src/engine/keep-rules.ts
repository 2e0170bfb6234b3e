/** The rules by which backups of a service are removed. */
export type KeepRules = {
  /** Whether anything may be removed: a requested fork may need it. */
  removes: boolean;
  /** The quota of the service: WAL that waits for a repository takes a part of it at most. */
  quotaBytes: number;
};
