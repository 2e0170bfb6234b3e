/**
 * Functions of node:fs that change files by their paths, for places that only root can change:
 * `services/ID` itself, the files directly in it or in its `config`, `snapshots`, `members`, and
 * the other directories of an installation. An import from here states that; elsewhere in the local
 * engine the linter refuses these functions. service-files.ts is for files that a service's user
 * can write.
 */
export {
  chmod,
  chown,
  mkdir,
  open,
  readFile,
  rename,
  rm,
  rmdir,
  symlink,
  truncate,
  writeFile,
} from 'node:fs/promises';
