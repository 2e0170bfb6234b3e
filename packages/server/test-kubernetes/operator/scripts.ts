/**
 * The scripts of the double's pods: what the instance manager of CloudNativePG does in them, as far
 * as the engine can see it. Secrets and settings are files; the kubelet replaces the directory of a
 * volume when they change.
 */

const COMMON = `set -eu
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
data=/var/lib/postgresql/data/pgdata
sql() { psql --quiet --no-psqlrc --set=ON_ERROR_STOP=1 --host=/tmp --username=postgres "$@"; }
set_password() {
  echo "set log_statement = none; alter role \\"$OWNER\\" password '$(cat /password/password)';" |
    sql --dbname=postgres
}
configure() {
  install --mode=600 /tls/tls.crt /tls/tls.key /tmp/
  cp /config/postgresql.conf "$data/double.conf"
  cp /config/pg_hba.conf "$data/pg_hba.conf"
}
`;

/** Makes the data of a new server, as the job of initdb does. */
export const INITDB = `${COMMON}
rm -rf "$data"
initdb --pgdata="$data" --username=postgres --data-checksums --encoding="$ENCODING" \\
  --lc-collate="$COLLATE" --lc-ctype="$CTYPE" --auth=trust >/dev/null
echo "include 'double.conf'" >>"$data/postgresql.conf"
: >"$data/double.conf"
pg_ctl --pgdata="$data" --wait --silent \\
  --options="-c listen_addresses='' -c unix_socket_directories=/tmp" start
sql --dbname=postgres --command="create role \\"$OWNER\\" login"
sql --dbname=postgres --command="create database \\"$DATABASE\\" owner \\"$OWNER\\""
set_password
sql --dbname=postgres --file=/config/init.sql
pg_ctl --pgdata="$data" --wait --silent --mode=fast stop
`;

/**
 * Runs PostgreSQL, applies files that change, and prints the server log as the instance manager
 * does: docs/cloudnativepg.md, facts 12, 14 and 15.
 */
export const SERVER = `${COMMON}
configure
# Of a server that was killed: the number is of another process here.
rm -f "$data/postmaster.pid"
mkdir -p "$data/log"
touch "$data/log/postgres.json"
touch --date=@0 /tmp/applied
tail --lines=0 --follow=name --quiet "$data/log/postgres.json" 2>/dev/null | sed --unbuffered \\
  's/^{"timestamp":/{"level":"info","logger":"postgres","record":{"log_time":/; s/$/}/' &
postgres -D "$data" &
server=$!
trap 'kill -INT $server; wait $server || true; exit 0' TERM
while kill -0 $server 2>/dev/null; do
  sleep 0.2 &
  wait $! || true
  touch /tmp/next
  for volume in /password /tls /config; do
    [ $volume/..data -nt /tmp/applied ] || continue
    configure
    kill -HUP $server
    set_password && mv /tmp/next /tmp/applied
    break
  done
done
wait $server
`;

/** Settings of every server, beside those of its Cluster. */
export const OWN_SETTINGS: readonly string[] = [
  "listen_addresses = '*'",
  'port = 5432',
  "unix_socket_directories = '/tmp'",
  'ssl = on',
  "ssl_cert_file = '/tmp/tls.crt'",
  "ssl_key_file = '/tmp/tls.key'",
  'password_encryption = scram-sha-256',
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
export const FIRST_RULES: readonly string[] = ['local all all trust'];
export const LAST_RULES: readonly string[] = ['host all all all scram-sha-256'];
