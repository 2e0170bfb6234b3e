/**
 * Functions of node:fs that change files by their paths, for places that only root can change: `services/ID` itself, what stands directly in
 * it or in its `config`, `snapshots`, `members`, and the other directories of an installation. An import from here states that; elsewhere in
 * the local engine the linter refuses them. What a service's user can write is for service-files.ts.
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
  truncate,
  writeFile,
} from 'node:fs/promises';
