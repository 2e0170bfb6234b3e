/**
 * The abilities of this machine, as one record that the local engine works with. `machine.ts` finds
 * them out.
 */
import type { Capacity, CloneMethod } from '@howdah/contract';
import type { Tuning } from '../../../lib/tuning.ts';
import type { PgBackRest } from '../../../repository/repository.ts';
import type { NetworkAbility } from '../network/networks.ts';
import type { Found } from '../postgres/installations.ts';
import type { EgressAbility } from './egress.ts';
import type { Layout } from './layout.ts';
import type { Limits } from './groups.ts';
import type { Owner, Isolation } from './users.ts';
import type { Program } from './daemon.ts';
import type { Namespaces, Sandbox } from './sandbox.ts';
import type { Shares } from './shares.ts';

/** The parts of an installation on a machine. */
export type Site = {
  layout: Layout;
  limits: Limits;
  /** The prefix of the names of its network namespaces. */
  networkPrefix: string;
};

export type Machine = Site & {
  tuning: Tuning;
  capacity: Capacity;
  /** The processors and the disk, as they are shared out to the servers. */
  shares: Shares;
  /** Whether a size is a bound of the CPU too, for services that do not say it themselves. */
  boundsCpu: boolean;
  /** The user that servers run as if the control plane is root; null: its own user. */
  owner: Owner | null;
  /** Whether each service has a user of its own. */
  isolation: Isolation;
  namespaces: Namespaces;
  /** Whether servers see only their own files and processes. */
  sandbox: Sandbox;
  cloneMethod: CloneMethod;
  /**
   * Whether the metadata database is on the same disk: for its sake archived WAL of services is
   * removed when nothing else helps.
   */
  hasMetadata: boolean;
  /** The change of the disk's reserve at this start; null: none. */
  reserve: 'released' | 'made' | null;
  installations: Found;
  /** For connection poolers; null: not installed. */
  pgbouncer: Program | null;
  /** For backups off this machine; null: not installed. */
  pgbackrest: PgBackRest | null;
  /** Whether VPCs can be networks of their own. */
  networks: NetworkAbility;
  /** Whether connections that servers begin can be refused. */
  egress: EgressAbility;
};
