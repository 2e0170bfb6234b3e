/** The means of backups off the machine. */
import type { PgBackRest } from '../../../repository/repository.ts';
import type { Machine } from '../host/machine-record.ts';

export type ShipContext = Readonly<{ machine: Machine; program: PgBackRest }>;

/** How often a service is backed up off the machine. */
export type ShipPolicy = {
  fullEveryMs: number;
  backupEveryMs: number;
};
