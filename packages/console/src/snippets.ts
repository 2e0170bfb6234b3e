/** Texts for other programs: connection strings, and a form's request as a command. */
import { ADMIN_ROLE, DATABASE_NAME } from '@howdah/contract/types';
import type { Schemas } from '@howdah/client';

export type Target = {
  host: string;
  port: number;
  database?: string;
  password: string | undefined;
};

export const SNIPPETS = ['psql', 'URI', 'JDBC', 'Node', 'Python'] as const;
export type Snippet = (typeof SNIPPETS)[number];

/** A placeholder for a value that only the user knows. */
export const UNKNOWN_PASSWORD = 'PASSWORD';

/** @param verified whether the client verifies the server's certificate against our CA in ca.pem */
export function connectionSnippet(
  kind: Snippet,
  { host, port, database = DATABASE_NAME, password = UNKNOWN_PASSWORD }: Target,
  verified: boolean,
): string {
  const mode = verified ? 'sslmode=verify-full&sslrootcert=ca.pem' : 'sslmode=require';
  const address = host.includes(':') ? `[${host}]` : host;
  // Generated passwords are URL-safe; others may not be.
  const uri = `postgres://${ADMIN_ROLE}:${encodeURIComponent(password)}@${address}:${port}/${database}?${mode}`;
  switch (kind) {
    case 'psql':
      return `psql "${uri}"`;
    case 'URI':
      return uri;
    case 'JDBC':
      return `jdbc:postgresql://${address}:${port}/${database}?user=${ADMIN_ROLE}&password=${encodeURIComponent(password)}&${mode}`;
    case 'Node':
      return [
        "import { readFileSync } from 'node:fs';",
        "import { Client } from 'pg';",
        '',
        'const client = new Client({',
        `  host: ${JSON.stringify(host)}, port: ${port}, database: ${JSON.stringify(database)},`,
        `  user: ${JSON.stringify(ADMIN_ROLE)}, password: ${JSON.stringify(password)},`,
        verified
          ? "  ssl: { ca: readFileSync('ca.pem') },"
          : '  ssl: { rejectUnauthorized: false },',
        '});',
        'await client.connect();',
      ]
        .filter((line) => verified || !line.includes('node:fs'))
        .join('\n');
    case 'Python':
      return ['import psycopg', '', `connection = psycopg.connect("${uri}")`].join('\n');
  }
}

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
  cpu_millis: cpu,
  replica_count: replicas,
  sync_replica_count: sync,
  environment_tag: tag,
  enable_pooler: pooler,
  vpc_id: vpc,
  storage_gb: storage,
}: Schemas['CreateService']): string {
  const options = [
    `--name ${shellQuoted(name)}`,
    region === undefined ? null : `--region ${region}`,
    // Without it the region would choose its default type.
    addons === undefined ? null : `--addons ${addons.join(',') || 'none'}`,
    cpu === undefined ? null : `--cpu-millis ${cpu}`,
    replicas === undefined ? null : `--replicas ${replicas}`,
    sync === undefined ? null : `--sync ${sync}`,
    tag === undefined ? null : `--environment ${tag}`,
    pooler === true ? '--pooler' : null,
    vpc === undefined ? null : `--vpc ${vpc}`,
    storage === undefined ? null : `--storage-gb ${storage}`,
  ];
  return ['howdah service create', ...options.filter((option) => option !== null)].join(' \\\n  ');
}

/** A word of a POSIX shell. */
export function shellQuoted(text: string): string {
  return /^[\w./:@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
