/** The settings of PostgreSQL as CloudNativePG takes them. */

/**
 * Parameters that CloudNativePG sets itself and refuses in a Cluster
 * (`FixedConfigurationParameters` of its `pkg/postgres/configuration.go`), as far as we set them.
 */
const FIXED: ReadonlySet<string> = new Set([
  'logging_collector',
  'log_destination',
  'log_directory',
  'log_filename',
  'log_file_mode',
  'log_rotation_age',
  'log_rotation_size',
  'shared_preload_libraries',
]);

/** @param settings with values as a configuration file takes them: strings in quotes */
export function clusterParameters(
  settings: Readonly<Record<string, string>>,
): Record<string, string> {
  return Object.fromEntries(
    Object.entries(settings)
      .filter(([name]) => !FIXED.has(name))
      .map(([name, value]) => [name, unquoted(value)]),
  );
}

function unquoted(value: string): string {
  const inside = /^'(.*)'$/s.exec(value)?.[1];
  return inside === undefined ? value : inside.replaceAll("''", "'");
}
