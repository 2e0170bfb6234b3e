#!/usr/bin/env bash
# The five-minute tour, checked: `./howdah up`, a service of every type made with curl and used with psql, stopped,
# started and deleted, and after `howdah down --databases` nothing left running. Works in any clone on any machine with
# curl and psql where no Howdah runs; types that `howdah doctor` cannot offer may be left out: tour.sh POSTGRES
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

types=("$@")
[ $# -gt 0 ] || types=(TIMESCALEDB VECTOR POSTGRES)
home=${HOWDAH_HOME:-$HOME/.howdah}
server=http://127.0.0.1:${HOWDAH_PORT:-8080}
scratch=$(mktemp -d)
up=

say() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }
fail() {
  printf 'tour: %s\n' "$*" >&2
  exit 1
}

finish() {
  local status=$?
  if [ $status != 0 ] && [ -e "$scratch/up.log" ]; then
    printf '\n-- the last words of howdah up --\n' >&2
    tail -n 60 "$scratch/up.log" >&2
  fi
  if [ -n "$up" ] && kill -0 "$up" 2>/dev/null; then
    ./howdah down --databases >&2 || kill "$up"
  fi
  rm -rf "$scratch"
  exit $status
}
trap finish EXIT
trap 'exit 130' INT TERM

# json FIELD <document: one field of a JSON object, a.b for nested ones.
json() {
  # shellcheck disable=SC2016
  node -e '
    const document = JSON.parse(require("fs").readFileSync(0, "utf8"));
    const value = process.argv[1].split(".").reduce((at, key) => at?.[key], document);
    if (value === undefined || value === null) {
      console.error(`no ${process.argv[1]} in ${JSON.stringify(document)}`);
      process.exit(1);
    }
    console.log(value);' "$1"
}

# eventually SECONDS COMMAND…: until it succeeds.
eventually() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $deadline ] || return 1
    sleep 0.2
  done
}

api() { # METHOD PATH [BODY]
  curl --silent --show-error --fail-with-body --max-time 30 --request "$1" --header "Authorization: Bearer $key" \
    ${3:+--header 'Content-Type: application/json' --data "$3"} "$services$2"
}

status_is() { [ "$(api GET "/$1" | json status)" = "$2" ]; }

reaches() { # SERVICE_ID STATUS
  eventually 120 status_is "$1" "$2" || fail "service $1 did not become $2: $(api GET "/$1")"
}

is_gone() {
  [ "$(curl --silent --output /dev/null --write-out '%{http_code}' --header "Authorization: Bearer $key" "$services/$1")" = 404 ]
}

query() { # TYPE SQL
  PGPASSWORD=${password[$1]} psql --no-psqlrc --quiet --tuples-only --no-align --set ON_ERROR_STOP=1 --command "$2" \
    "host=${host[$1]} port=${port[$1]} dbname=tsdb user=tsdbadmin sslmode=verify-full sslrootcert=$scratch/ca.pem connect_timeout=10"
}

expect() { # WHAT WANTED FOUND
  [ "$2" = "$3" ] || fail "$1: wanted '$2', found '$3'"
  printf '%s: %s\n' "$1" "$3"
}

# Every process of a database, pooler or proxy on this machine.
servers() {
  local process
  for process in /proc/[0-9]*; do
    if tr '\0' ' ' <"$process/cmdline" | grep -Eq '^([^ ]*\/)?(postgres|pgbouncer|haproxy)[: ]'; then echo "${process#/proc/}"; fi
  done 2>/dev/null | sort
}

command -v curl >/dev/null || fail 'needs curl'
! curl --silent --output /dev/null --max-time 2 "$server/healthz" || fail "something already answers at $server"

servers_before=$(servers)

# The first start of a clone installs and builds, hence the long wait; a start that fails ends it at once.
serving_or_ended() { curl --silent --fail --output /dev/null "$server/healthz" || ended; }
ended() { ! kill -0 "$up" 2>/dev/null; }
go_up() {
  ./howdah up >"$scratch/up.log" 2>&1 &
  up=$!
  eventually 600 serving_or_ended || fail 'howdah up did not begin to serve'
  ! ended || fail 'howdah up has ended'
}

say 'howdah up'
go_up
cat "$scratch/up.log"
command -v psql >/dev/null || fail 'needs psql, which comes with PostgreSQL from Debian'

credentials=$home/credentials.json
expect 'mode of credentials.json' 600 "$(stat -c %a "$credentials")"
api_url=$(json api_url <"$credentials")
services=$api_url/projects/$(json project_id <"$credentials")/services
key=$(json public_key <"$credentials"):$(json secret_key <"$credentials")
curl --silent --show-error --fail --output "$scratch/ca.pem" "$api_url/ca.pem"

say 'howdah doctor'
./howdah doctor
say 'howdah status'
./howdah status

declare -A addons=([TIMESCALEDB]='"time-series"' [VECTOR]='"ai"' [POSTGRES]='')
declare -A extension=([TIMESCALEDB]=timescaledb [VECTOR]=vector [POSTGRES]=plpgsql)
declare -A id host port password

for type in "${types[@]}"; do
  say "create a service of the type $type"
  created=$(api POST '' "{\"name\": \"tour ${type,,}\", \"addons\": [${addons[$type]}]}")
  id[$type]=$(json service_id <<<"$created")
  host[$type]=$(json endpoint.host <<<"$created")
  port[$type]=$(json endpoint.port <<<"$created")
  password[$type]=$(json initial_password <<<"$created")
done
for type in "${types[@]}"; do
  reaches "${id[$type]}" READY
  say "$type is READY: psql"
  expect "type of ${id[$type]}" "$type" "$(api GET "/${id[$type]}" | json service_type)"
  query "$type" 'select version()'
  query "$type" 'create table visits (at timestamptz not null default now(), who text)'
  query "$type" "insert into visits (who) values ('tour')"
  expect 'extension' "${extension[$type]}" \
    "$(query "$type" "select extname from pg_extension where extname = '${extension[$type]}' and extversion <> ''")"
done
for type in "${types[@]}"; do
  case $type in
    TIMESCALEDB)
      query "$type" "select count(*) from create_hypertable('visits', by_range('at'), migrate_data => true)" >/dev/null
      expect hypertables visits "$(query "$type" 'select hypertable_name from timescaledb_information.hypertables')"
      ;;
    VECTOR) expect distance 5 "$(query "$type" "select '[0,0]'::vector <-> '[3,4]'::vector")" ;;
  esac
done

say 'a second howdah up says that one runs'
timeout 30 ./howdah up

say 'Ctrl-C: the databases go on, and the next howdah up takes them over'
kill -INT "$up"
eventually 60 ended || fail 'howdah up did not end'
tail -n 1 "$scratch/up.log"
for type in "${types[@]}"; do
  expect "rows in $type meanwhile" 1 "$(query "$type" 'select count(*) from visits')"
done
go_up
for type in "${types[@]}"; do reaches "${id[$type]}" READY; done
./howdah status

last=${types[-1]}
say "stop, start and use the $last service again"
api POST "/${id[$last]}/stop" >/dev/null
reaches "${id[$last]}" PAUSED
! query "$last" 'select 1' 2>/dev/null || fail 'a stopped service still answers'
api POST "/${id[$last]}/start" >/dev/null
reaches "${id[$last]}" READY
expect 'rows after stop and start' 1 "$(query "$last" 'select count(*) from visits')"

say "delete the $last service"
api DELETE "/${id[$last]}" >/dev/null
eventually 60 is_gone "${id[$last]}" || fail 'the deleted service is still there'

say 'howdah down --databases'
data=$(dirname "$(readlink -f "$credentials")")
./howdah down --databases
eventually 30 ended || fail 'howdah up still runs'
up=
left=$(comm -13 <(echo "$servers_before") <(servers))
[ -z "$left" ] || {
  for pid in $left; do tr '\0' ' ' <"/proc/$pid/cmdline" && echo; done
  fail 'these are still running'
}
say "done; $data is kept"
