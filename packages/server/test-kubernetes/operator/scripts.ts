/**
 * The scripts of the double's pods: what the instance manager of CloudNativePG does in them, as far
 * as the engine can see it. Secrets and settings are files; the kubelet replaces the directory of a
 * volume when they change.
 */

import { OUT_OF_SPACE } from './cluster.ts';

export const COMMON = `set -eu
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
data=/var/lib/postgresql/data/pgdata
sql() { psql --quiet --no-psqlrc --set=ON_ERROR_STOP=1 --host=/tmp --username=postgres "$@"; }
# How streaming_replica logs in to its own servers, and to those that the data is copied from. The
# latter may have a password in place of a certificate: docs/cloudnativepg.md, facts 20, 37 and 40.
keep_key() {
  for part in crt key; do install --mode=600 "$1/tls.$part" "/tmp/$2.$part"; done
}
keep_key /replication own
own="user=streaming_replica sslmode=verify-full sslrootcert=/authority/ca.crt"
own="$own sslcert=/tmp/own.crt sslkey=/tmp/own.key"
if [ -n "\${SOURCE:-}" ]; then
  if [ -e /source-key ]; then
    keep_key /source-key source
    login="sslcert=/tmp/source.crt sslkey=/tmp/source.key"
  else login="password=$SOURCE_PASSWORD"
  fi
  source="$SOURCE sslrootcert=/source/ca.crt $login"
fi
# As each server of a Cluster does, that of a job too: docs/cloudnativepg.md, fact 36.
load_libraries() {
  grep '^shared_preload_libraries = ' /config/postgresql.conf >"$data/double.conf"
}
# restoreCustomWalDir of pkg/management/postgres/restore.go of CloudNativePG.
wal=/var/lib/postgresql/wal
move_wal() {
  if [ ! -d $wal ] || [ -L "$data/pg_wal" ]; then return; fi
  rm -rf $wal/pg_wal
  cp -a "$data/pg_wal" $wal/pg_wal
  rm -rf "$data/pg_wal"
  ln -s $wal/pg_wal "$data/pg_wal"
}
# Without a wait for standbys, which may have no primary yet.
set_password() {
  echo "set log_statement = none; set synchronous_commit = local;" \\
    "alter role \\"$OWNER\\" password '$(cat /password/password)';" | sql --dbname=postgres
}
`;

/** Makes the data of a new server, as the job of initdb does. */
export const INITDB = `${COMMON}
rm -rf "$data"
# What is lost with the machine is lost with the cluster of a test: nothing is flushed.
initdb --no-sync --pgdata="$data" --username=postgres --data-checksums --encoding="$ENCODING" \\
  --lc-collate="$COLLATE" --lc-ctype="$CTYPE" --auth=trust >/dev/null
move_wal
echo "include 'double.conf'" >>"$data/postgresql.conf"
load_libraries
pg_ctl --pgdata="$data" --wait --silent \\
  --options="-F -c listen_addresses='' -c unix_socket_directories=/tmp" start
sql --dbname=postgres --command="create role \\"$OWNER\\" login"
# In this order: docs/cloudnativepg.md, facts 24 and 28.
sql --dbname=postgres --file=/config/init.sql
sql --dbname=postgres <<'END'
select 'create role streaming_replica' where not exists
  (select from pg_roles where rolname = 'streaming_replica') \\gexec
END
sql --dbname=postgres --command='alter role streaming_replica login replication'
sql --dbname=template1 --file=/config/template.sql
sql --dbname=postgres --command="create database \\"$DATABASE\\" owner \\"$OWNER\\""
sql --dbname="$DATABASE" --file=/config/application.sql
set_password
pg_ctl --pgdata="$data" --wait --silent --mode=fast stop
`;

/**
 * Copies the data of another server, as the job pgbasebackup does. The role of the owner has its
 * old password until the server runs: docs/cloudnativepg.md, fact 19.
 */
export const COPY = `${COMMON}
rm -rf "$data"
pg_basebackup --pgdata="$data" --no-sync --checkpoint=fast --dbname="$source"
move_wal
# As CloudNativePG makes the file of a server that it has not made (fact 37).
grep --quiet double.conf "$data/postgresql.conf" 2>/dev/null ||
  echo "include 'double.conf'" >"$data/postgresql.conf"
load_libraries
# Only a server that is no standby is started: docs/cloudnativepg.md, fact 32.
if [ "$REPLICA" = yes ]; then
  touch "$data/standby.signal"
  exit
fi
pg_ctl --pgdata="$data" --wait --silent \\
  --options="-c listen_addresses='' -c unix_socket_directories=/tmp" start
pg_ctl --pgdata="$data" --wait --silent --mode=fast stop
`;

/**
 * Starts from a snapshot of the volume of another server, as the job snapshot-recovery does:
 * docs/cloudnativepg.md, fact 25.
 */
export const RECOVER = `${COMMON}
rm -rf "$data/postmaster.pid" "$data/log"
move_wal
load_libraries
pg_ctl --pgdata="$data" --wait --silent \\
  --options="-c listen_addresses='' -c unix_socket_directories=/tmp" start
pg_ctl --pgdata="$data" --wait --silent --mode=fast stop
`;

/**
 * Runs PostgreSQL as the primary or as a standby, applies files that change, and prints the server
 * log as the instance manager does: docs/cloudnativepg.md, facts 3, 12, 14 and 15. A former primary
 * clones the new one; CloudNativePG rewinds it.
 */
export const SERVER = `${COMMON}
# docs/cloudnativepg.md, fact 46.
primary="host=$CLUSTER-rw port=5432 $own tcp_user_timeout=5000"
# The first server of a replica cluster follows its source, and the others follow that one.
followed() {
  if [ "$REPLICA" = yes ] && [ "$STARTS_AS" = primary ]; then echo "$source"
  else echo "$primary"
  fi
}
is_standby() { [ -e "$data/standby.signal" ]; }
is_fenced() { grep -q yes /config/fenced; }
clone() {
  # A clone waits for the new primary: docs/cloudnativepg.md, fact 28.
  until psql --no-psqlrc --command='' "$primary dbname=postgres" >/dev/null; do sleep 0.5; done
  until rm -rf "$data.new" && pg_basebackup --pgdata="$data.new" --dbname="$primary" \\
    --checkpoint=fast --no-sync; do
    sleep 0.5
  done
  touch "$data.new/standby.signal"
  rm -rf "$data" "$data.new/log"
  mv "$data.new" "$data"
  move_wal
}
# PostgreSQL refuses a standby that has less of these than its primary.
at_least_as_primary() {
  pg_controldata "$data" | sed --quiet '
    s/^max_connections setting: */max_connections /p
    s/^max_worker_processes setting: */max_worker_processes /p
    s/^max_wal_senders setting: */max_wal_senders /p
    s/^max_prepared_xacts setting: */max_prepared_transactions /p
    s/^max_locks_per_xact setting: */max_locks_per_transaction /p' |
    while read -r name value; do
      own=$(sed --quiet "s/^$name = '\\([0-9]*\\)'$/\\1/p" /config/postgresql.conf)
      [ "\${own:-0}" -ge "$value" ] || echo "$name = $value"
    done
}
configure() {
  install --mode=600 /tls/tls.crt /tls/tls.key /clients/ca.crt /tmp/
  cp /config/pg_hba.conf "$data/pg_hba.conf"
  {
    cat /config/postgresql.conf
    echo "primary_conninfo = '$(followed) application_name=$SERVER'"
    if is_standby; then at_least_as_primary; fi
  } >"$data/double.conf.new"
  mv "$data/double.conf.new" "$data/double.conf"
}
# As CloudNativePG does before a start and after an end, which passes over any other error than
# ENOSPC, as that of a quota: docs/cloudnativepg.md, fact 42.
exit_without_space() {
  local error
  error=$(LC_ALL=C fallocate --length 32M "$data/pg_wal/double.probe" 2>&1) || true
  rm -f "$data/pg_wal/double.probe"
  case $error in *'No space left on device'*) exit ${OUT_OF_SPACE} ;; esac
}
start() {
  if [ -e "$data/pg_wal" ]; then exit_without_space; fi
  # Once in a pod: the operator promotes a standby later, without another pod.
  if [ "$STARTS_AS" = standby ] && [ ! -e /tmp/started ] && ! is_standby; then clone; fi
  touch /tmp/started
  configure
  # Of a server that was killed: the number is of another process here.
  rm -f "$data/postmaster.pid"
  mkdir -p "$data/log"
  touch "$data/log/postgres.json"
  touch --date=@0 /tmp/applied
  postgres -D "$data" &
  server=$!
}
stop() {
  if [ -n "$server" ]; then
    kill -INT "$server" || true
    wait "$server" || true
  fi
  server=
}
# In order, so that standbys get all WAL; at once after a minute: docs/cloudnativepg.md, fact 41.
fence() {
  if [ -z "$server" ]; then return; fi
  sql --dbname=postgres --command=checkpoint >/dev/null 2>&1 || true
  pg_ctl --pgdata="$data" --silent --wait --timeout=60 --mode=fast stop ||
    pg_ctl --pgdata="$data" --silent --wait --mode=immediate stop || true
  wait "$server" || true
  server=
}
apply() {
  touch /tmp/next
  for volume in /password /tls /config; do
    [ $volume/..data -nt /tmp/applied ] || continue
    configure
    kill -HUP "$server" || return 0
    if is_standby || set_password; then mv /tmp/next /tmp/applied; fi
    break
  done
}
server=
trap 'stop; exit 0' TERM
if [ -e "$data" ]; then
  mkdir -p "$data/log"
  touch "$data/log/postgres.json"
fi
tail --lines=0 --follow=name --retry --quiet "$data/log/postgres.json" 2>/dev/null |
  sed --unbuffered \\
    's/^{"timestamp":/{"level":"info","logger":"postgres","record":{"log_time":/; s/$/}/' &
while :; do
  if is_fenced; then fence
  elif [ -z "$server" ]; then start
  elif ! kill -0 "$server" 2>/dev/null; then
    status=0
    wait "$server" || status=$?
    exit_without_space
    exit "$status"
  fi
  sleep 0.2 &
  wait $! || true
  if [ -n "$server" ]; then apply; fi
done
`;

/** Settings that a Cluster may have otherwise: docs/cloudnativepg.md, fact 19. */
export const DEFAULT_SETTINGS: readonly string[] = ["wal_keep_size = '512MB'"];

/** Settings of every server, beside those of its Cluster. */
export const OWN_SETTINGS: readonly string[] = [
  "listen_addresses = '*'",
  'port = 5432',
  "unix_socket_directories = '/tmp'",
  'ssl = on',
  "ssl_cert_file = '/tmp/tls.crt'",
  "ssl_key_file = '/tmp/tls.key'",
  "ssl_ca_file = '/tmp/ca.crt'",
  'password_encryption = scram-sha-256',
  // As in initdb: a pod that is killed loses nothing that its kernel has.
  'fsync = off',
  // Without a plugin, each file is taken as archived: docs/cloudnativepg.md, fact 5.
  'archive_mode = on',
  `archive_command = 'sh /config/archive.sh "%p"'`,
  'logging_collector = on',
  "log_destination = 'jsonlog'",
  "log_directory = 'log'",
  // The name of the JSON file: the collector replaces the end.
  "log_filename = 'postgres.log'",
  'log_rotation_age = 0',
  'log_rotation_size = 0',
  "log_timezone = 'UTC'",
];

/** Rules of CloudNativePG around those of a Cluster. */
export const FIRST_RULES: readonly string[] = [
  'local all all trust',
  'hostssl postgres streaming_replica all cert',
  'hostssl replication streaming_replica all cert',
];
export const LAST_RULES: readonly string[] = ['host all all all scram-sha-256'];
