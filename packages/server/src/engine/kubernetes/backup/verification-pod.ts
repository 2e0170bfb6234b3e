/**
 * The pod that examines a backup: a server of its own on a volume that is made of a snapshot, or
 * that an archive was recovered to. It has no network listener and no token of Kubernetes, and is
 * gone in the end, with the volume that is made of a snapshot. The data is of a tenant, so nothing
 * of its configuration is obeyed, and no server but this one is reached by a session in it.
 */
import type { Placement, RestoreCertificate } from '@howdah/contract';
import { isOfUsers, REMOVED_LIMIT } from '../../../domain/postgres/databases.ts';
import { KINDS } from '../api/kinds.ts';
import {
  clusterName,
  LABELS,
  MANAGED,
  namespaceOf,
  VERIFICATION_LABEL,
  verificationPod,
} from '../names.ts';
import { nodesOf, priorityOf, pullsOf } from '../region/settings.ts';
import { RESTORE_ARCHIVE, VERIFICATION_STEP } from '../../verification-steps.ts';

export type VerificationInput = Readonly<{
  id: string;
  projectId: string;
  region: string;
  /** The Cluster, with which the pod goes. */
  clusterUid: string;
  image: string;
  major: number;
  preload: readonly string[];
  /** The snapshot that a volume is made of, or a volume that nothing else uses. */
  volume: Readonly<{ snapshot: string }> | Readonly<{ claim: string }>;
  storageGb: number;
  storageClass: string | null;
  placement: Placement;
  /** Whether its image is pulled by the credentials of the region. */
  pulls: boolean;
}>;

/** The container whose output has the results. */
export const VERIFICATION_CONTAINER = 'verification';

/** CloudNativePG's images have this user. */
const USER = 26;
const DATA = '/var/lib/postgresql/data';
/** Longer than any volume takes; then Kubernetes ends it. */
const WITHIN_S = 86_400;

/**
 * Prints one line for each step: its name, `ok`, `failed` or `error`, and a detail in base64. Only
 * `failed` says something of the backup. Nothing else is printed: what programs say of the data
 * goes into files.
 */
const SCRIPT = `set -u
PATH=$PATH:/usr/lib/postgresql/$MAJOR/bin
say() { printf '%s %s %s\\n' "$1" "$2" "$(printf %s "$3" | head -c 1500 | base64 | tr -d '\\n')"; }
end() { say "$@"; exit 0; }
ask() { psql -XAtqh /tmp -U postgres -d postgres -c "$1" 2>>/tmp/psql.log; }

[ -s "$PGDATA/PG_VERSION" ] || end restore failed 'its volume has no data directory'
chmod 0700 "$PGDATA" || end restore error 'the data directory belongs to another user'
rm -f "$PGDATA/postmaster.pid" "$PGDATA/standby.signal" "$PGDATA/recovery.signal"
: >"$PGDATA/postgresql.auto.conf"
say restore ok "$(du -sm "$PGDATA" | cut -f 1) MB"

printf %s "$CONFIGURATION" >/tmp/postgresql.conf
echo 'local all postgres trust' >/tmp/pg_hba.conf
: >/tmp/pg_ident.conf
postgres -D "$PGDATA" -c config_file=/tmp/postgresql.conf >/tmp/server.log 2>&1 &
server=$!
until pg_isready -qh /tmp; do
  kill -0 $server 2>/dev/null || {
    wait $server
    [ $? -gt 128 ] && end replay error 'its server was killed'
    why=$(grep -E ' (FATAL|PANIC): ' /tmp/server.log | tail -n 1)
    [ -n "$why" ] || why=$(tail -n 3 /tmp/server.log)
    end replay failed "$why"
  }
  sleep 0.2
done
say replay ok "accepting connections, PostgreSQL $(ask 'show server_version')"

if [ "$(ask "select count(*) from pg_available_extensions where name = 'amcheck'")" = 1 ]; then
  pg_amcheck -wvh /tmp -U postgres --all --install-missing >/tmp/relations 2>&1
  case $? in
    0) say relations ok "$(grep -c 'checking heap table' /tmp/relations) tables and $(
      grep -c 'checking btree index' /tmp/relations
    ) indexes" ;;
    2) end relations failed "$(
      grep -A 1 -E '^(heap table|btree index) ' /tmp/relations | head -n 2
    )" ;;
    *) end relations error "$(tail -n 2 /tmp/relations)" ;;
  esac
else
  say relations ok 'not done: the image has no amcheck'
fi

# Within a time for all databases. No expression of a tenant runs: pgstattuple reads pages.
count_rows() {
  databases=0 tables=0 rows=0 until=$(($(date +%s) + COUNT_S))
  [ "$(ask "select count(*) from pg_available_extensions where name = 'pgstattuple'")" = 1 ] ||
    return 1
  for oid in $(ask "$DATABASES"); do
    left=$((until - $(date +%s)))
    [ $left -gt 0 ] || return 1
    found=$(PGDATABASE=$(ask "select datname from pg_database where oid = $oid") \
      PGOPTIONS="$PGOPTIONS -c statement_timeout=\${left}s" \
      psql -XAtq -F ' ' -h /tmp -U postgres -c "$PREPARE_COUNT" -c "$COUNT" 2>>/tmp/psql.log) ||
      return 1
    databases=$((databases + 1))
    tables=$((tables + \${found% *}))
    rows=$((rows + \${found#* }))
  done
}
if count_rows; then
  say rows ok "$rows rows in $tables tables of $databases databases"
else
  say rows ok 'not done: for lack of pgstattuple in the image, or of time'
fi

kill -INT $server
wait $server || end pages error 'the copy did not shut down'
if pg_checksums --check -D "$PGDATA" >/tmp/pages 2>&1; then
  say pages ok "$(sed -n 's/^Blocks scanned: *//p' /tmp/pages) pages in $(
    sed -n 's/^Files scanned: *//p' /tmp/pages
  ) files"
elif grep -q 'checksums are not enabled' /tmp/pages; then
  say pages ok 'not done: the data has no checksums'
elif grep -q '^Bad checksums: *[1-9]' /tmp/pages; then
  say pages failed "$(head -n 1 /tmp/pages)"
else
  say pages error "$(head -n 1 /tmp/pages)"
fi
`;

const DATABASES = `select oid from pg_database where datallowconn
  and datconnlimit <> ${REMOVED_LIMIT} and ${isOfUsers('pg_database')} order by datname`;
const PREPARE_COUNT =
  'create extension if not exists pgstattuple schema pg_catalog; ' +
  'alter extension pgstattuple set schema pg_catalog';
const COUNT = `select count(*),
    coalesce(sum((pg_catalog.pgstattuple(c.oid::regclass)).tuple_count), 0)
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where c.relkind in ('r', 'm') and c.relpersistence <> 't'
    and n.nspname <> 'information_schema' and n.nspname !~ '^pg_'`;
const COUNT_S = 600;

/**
 * As much as any data needs to be recovered: slots and prepared transactions that are on the disk
 * keep a server with lower limits from its start. It has no workers: those of extensions would work
 * on the data.
 */
const configurationOf = ({ major, preload }: VerificationInput): string =>
  Object.entries({
    listen_addresses: '',
    unix_socket_directories: '/tmp',
    hba_file: '/tmp/pg_hba.conf',
    ident_file: '/tmp/pg_ident.conf',
    logging_collector: 'off',
    archive_mode: 'off',
    autovacuum: 'off',
    fsync: 'off',
    shared_buffers: '128MB',
    dynamic_shared_memory_type: 'mmap',
    wal_level: 'logical',
    max_connections: '20',
    max_prepared_transactions: '1000',
    max_replication_slots: '200',
    max_worker_processes: '0',
    max_logical_replication_workers: '0',
    shared_preload_libraries: preload.join(','),
    ...(major >= 17 ? { event_triggers: 'off', summarize_wal: 'off' } : {}),
  })
    .map(([name, value]) => `${name} = '${value}'\n`)
    .join('');

/** Settings of databases and roles are a tenant's: those of a client come before them. */
const optionsOf = (major: number): string =>
  Object.entries({
    role: 'none',
    statement_timeout: '0',
    lock_timeout: '0',
    idle_in_transaction_session_timeout: '0',
    default_transaction_read_only: 'off',
    search_path: 'pg_catalog',
    ...(major >= 17 ? { transaction_timeout: '0' } : {}),
  })
    .map(([name, value]) => `-c ${name}=${value}`)
    .join(' ');

export function verificationManifest(input: VerificationInput): object {
  const { id, projectId, region, clusterUid } = input;
  const { apiVersion, kind } = KINDS.cluster;
  return {
    apiVersion: KINDS.pod.apiVersion,
    kind: KINDS.pod.kind,
    metadata: {
      name: verificationPod(id),
      namespace: namespaceOf(projectId),
      labels: {
        ...MANAGED,
        [LABELS.project]: projectId,
        [LABELS.service]: id,
        [LABELS.region]: region,
        [VERIFICATION_LABEL]: clusterName(id),
      },
      ownerReferences: [{ apiVersion, kind, name: clusterName(id), uid: clusterUid }],
    },
    spec: podSpec(input),
  };
}

function podSpec(input: VerificationInput): object {
  const { image, major } = input;
  const environment = {
    MAJOR: String(major),
    PGDATA: `${DATA}/pgdata`,
    CONFIGURATION: configurationOf(input),
    PGOPTIONS: optionsOf(major),
    DATABASES,
    PREPARE_COUNT,
    COUNT,
    COUNT_S: String(COUNT_S),
  };
  return {
    ...nodesOf(input.placement),
    ...priorityOf(input.placement),
    ...pullsOf(input.region, input.pulls),
    restartPolicy: 'Never',
    activeDeadlineSeconds: WITHIN_S,
    terminationGracePeriodSeconds: 0,
    automountServiceAccountToken: false,
    enableServiceLinks: false,
    securityContext: {
      runAsNonRoot: true,
      runAsUser: USER,
      runAsGroup: USER,
      fsGroup: USER,
      fsGroupChangePolicy: 'OnRootMismatch',
      seccompProfile: { type: 'RuntimeDefault' },
    },
    containers: [
      {
        name: VERIFICATION_CONTAINER,
        image,
        command: ['sh', '-c', SCRIPT],
        env: Object.entries(environment).map(([name, value]) => ({ name, value })),
        // The pod takes what services leave.
        resources: { requests: { cpu: '50m', memory: '256Mi' }, limits: { memory: '1Gi' } },
        securityContext: {
          allowPrivilegeEscalation: false,
          capabilities: { drop: ['ALL'] },
          readOnlyRootFilesystem: true,
        },
        volumeMounts: [
          { name: 'data', mountPath: DATA },
          { name: 'temporary', mountPath: '/tmp' },
        ],
      },
    ],
    volumes: [
      { name: 'data', ...volumeOf(input) },
      { name: 'temporary', emptyDir: { sizeLimit: '1Gi' } },
    ],
  };
}

/** Kubernetes makes the volume of a snapshot with the pod, and removes it with that. */
const volumeOf = (input: VerificationInput): object =>
  'claim' in input.volume
    ? { persistentVolumeClaim: { claimName: input.volume.claim } }
    : { ephemeral: { volumeClaimTemplate: { spec: claimOf(input, input.volume.snapshot) } } };

const claimOf = (
  { storageGb, storageClass }: Pick<VerificationInput, 'storageGb' | 'storageClass'>,
  snapshot: string,
): object => ({
  accessModes: ['ReadWriteOnce'],
  ...(storageClass === null ? {} : { storageClassName: storageClass }),
  resources: { requests: { storage: `${storageGb}G` } },
  dataSource: {
    apiGroup: KINDS.snapshot.apiVersion.split('/')[0],
    kind: KINDS.snapshot.kind,
    name: snapshot,
  },
});

export type PodStep = 'restore' | 'replay' | 'relations' | 'rows' | 'pages';

/**
 * The steps in their order, by their names in the output of the pod.
 *
 * @param toMs the moment up to which an archive is recovered; null: it is a snapshot
 */
export const stepsOf = (toMs: number | null): readonly (readonly [PodStep, string])[] => [
  ['restore', toMs === null ? VERIFICATION_STEP.restore : RESTORE_ARCHIVE],
  ['replay', VERIFICATION_STEP.replay],
  ['relations', VERIFICATION_STEP.relations],
  ['rows', VERIFICATION_STEP.rows],
  ['pages', VERIFICATION_STEP.pages],
];

/** `failed` says that the backup is damaged, `error` that it could not be examined. */
export type StepResult = Readonly<{ state: 'ok' | 'failed' | 'error'; detail: string }>;

const LINE = /^(restore|replay|relations|rows|pages) (ok|failed|error) ([A-Za-z0-9+/=]*)$/;
/** Longest detail that users are shown. */
const MAX_LENGTH = 500;

/** The result of a step in the output of the pod; null: it has not ended. */
export function resultIn(output: string, step: PodStep): StepResult | null {
  for (const line of output.split('\n')) {
    const [, name, state, detail = ''] = LINE.exec(line) ?? [];
    if (name === step && (state === 'ok' || state === 'failed' || state === 'error'))
      return { state, detail: textOf(detail) };
  }
  return null;
}

/** The figures in the detail of a step; null: the pod could not measure them. */
export const contentsIn = (detail: string): RestoreCertificate['contents'] => {
  const found = /^(\d+) rows in (\d+) tables of (\d+) databases$/.exec(detail);
  if (found === null) return null;
  const [rows = 0, tables = 0, databases = 0] = found.slice(1).map(Number);
  return { databases, tables, rows, uncounted_tables: 0 };
};
export const pagesIn = (detail: string): RestoreCertificate['pages'] => {
  const found = /^(\d+) pages in (\d+) files$/.exec(detail);
  if (found === null) return null;
  const [pages = 0, files = 0] = found.slice(1).map(Number);
  return { pages, files };
};
export const versionIn = (detail: string): string | null =>
  /, PostgreSQL (\d\S*)/.exec(detail)?.[1] ?? null;

/** Names of a tenant are in it. */
const textOf = (base64: string): string =>
  Buffer.from(base64, 'base64')
    .toString('utf8')
    .replaceAll(/[\p{Cc}\p{Cf}]+/gu, ' ')
    .trim()
    .slice(0, MAX_LENGTH);
