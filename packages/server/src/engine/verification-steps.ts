/** The steps of the verification of a backup, as users read them. */
export const VERIFICATION_STEP = {
  restore: 'restore snapshot',
  restoreArchive: 'restore from object store',
  replay: 'replay WAL',
  catalogs: 'compare catalogs',
  relations: 'check tables and indexes',
  pages: 'check page checksums',
} as const;
