/**
 * Where the package's own files are: the same from the sources and from the bundle, which both
 * stand one directory below it.
 */
import { fileURLToPath } from 'node:url';

export const MIGRATIONS_DIRECTORY = fileURLToPath(new URL('../migrations/', import.meta.url));
export const OPENAPI_FILE = fileURLToPath(
  new URL('../../../openapi/openapi.json', import.meta.url),
);
/** The web console as it was built: `index.html` and `assets/`. */
export const CONSOLE_DIRECTORY = fileURLToPath(new URL('../../console/dist/', import.meta.url));
/** The C source of the module for read-only sessions. */
export const READ_ONLY_MODULE_SOURCE = fileURLToPath(
  new URL('../postgresql/howdah_read_only.c', import.meta.url),
);
/** The entry of the activator's process, as the bundle has it. */
export const ACTIVATOR_FILE = fileURLToPath(new URL('../dist/activator.js', import.meta.url));
