/** A form's request as a command. */
import type { Schemas } from '@howdah/client';

/** A placeholder for a value that only the user knows. */
export const UNKNOWN_PASSWORD = 'PASSWORD';

/** `$HD_PROJECT` and `$HD_KEY` are what `howdah env` sets. */
export function curlOf(request: Schemas['CreateService']): string {
  return [
    'curl -H "Authorization: Bearer $HD_KEY" \\',
    "     -H 'Content-Type: application/json' \\",
    `     -d ${shellQuoted(JSON.stringify(request))} \\`,
    '     "$HD_PROJECT/services"',
  ].join('\n');
}

export function cliOf({
  name,
  region_code: region,
  addons,
  pg_version: version,
  cpu_millis: cpu,
  replica_count: replicas,
  sync_replica_count: sync,
  environment_tag: tag,
  enable_pooler: pooler,
  vpc_id: vpc,
  storage_gb: storage,
  ttl_seconds: ttl,
  purge_on_expiry: purges,
}: Schemas['CreateService']): string {
  const options = [
    `--name ${shellQuoted(name)}`,
    region === undefined ? null : `--region ${region}`,
    // Without it the region would choose its default type.
    addons === undefined ? null : `--addons ${addons.join(',') || 'none'}`,
    version === undefined ? null : `--pg-version ${version}`,
    cpu === undefined ? null : `--cpu-millis ${cpu}`,
    replicas === undefined ? null : `--replicas ${replicas}`,
    sync === undefined ? null : `--sync ${sync}`,
    tag === undefined ? null : `--environment ${tag}`,
    pooler === true ? '--pooler' : null,
    vpc === undefined ? null : `--vpc ${vpc}`,
    storage === undefined ? null : `--storage-gb ${storage}`,
    ttl === undefined ? null : `--ttl ${ttl}s`,
    purges === true ? '--purge-on-expiry' : null,
  ];
  return ['howdah service create', ...options.filter((option) => option !== null)].join(' \\\n  ');
}

/** A word of a POSIX shell. */
export function shellQuoted(text: string): string {
  return /^[\w./:@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
