/** Data of a service that the metadata database may not know: what is found of it in a region. */
import type { Endpoint } from './spec.ts';

/** A directory with the data of a service, made by Howdah. */
export type Adoptable = {
  id: string;
  /** The major version of PostgreSQL. */
  major: number;
  /** The extensions whose libraries its servers load. */
  libraries: readonly string[];
  /**
   * The last upgrade that made its data; null: none did. The version before it and its time are
   * known while the former data is there.
   */
  upgraded: { id: string; from: number | null; at: string | null } | null;
  /** Where it listened, if nothing else listens there now; null: unknown, or in use. */
  endpoint: Endpoint | null;
  /** The process of its server; null: it does not run. */
  pid: number | null;
  /** The disk space of it. */
  dataBytes: number;
};

/** The adoption of data that the metadata database does not know. */
export interface Adoption {
  /**
   * The data of a service in a directory of this machine. It may be hostile, and nothing is
   * changed.
   *
   * @returns null: it is not a directory of services of this region
   * @throws NotAdoptable
   */
  find(directory: string): Promise<Adoptable | null>;
}

/** A directory of services that cannot be adopted; the message is for the operator. */
export class NotAdoptable extends Error {}
