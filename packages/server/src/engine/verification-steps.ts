/** The steps of the verification of a backup, as users read them. */
export const VERIFICATION_STEP = {
  restore: 'restore snapshot',
  replay: 'replay WAL',
  catalogs: 'compare catalogs',
  relations: 'check tables and indexes',
  rows: 'count rows',
  pages: 'check page checksums',
} as const;

export const VERIFICATION_STEPS: readonly string[] = Object.values(VERIFICATION_STEP);

/** The first step, where an archive in an object store is verified. */
export const RESTORE_ARCHIVE = 'restore from object store';
