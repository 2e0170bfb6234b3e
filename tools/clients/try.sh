#!/usr/bin/env bash
# Runs the programs that `howdah url SERVICE --for CLIENT` prints, each with its package from the
# registry of its language: tools/clients/try.sh SERVICE [CLIENT…], with the password of the service
# in PGPASSWORD. The languages must be installed. Prints one line for each client.
set -uo pipefail
service=${1:?usage: tools/clients/try.sh SERVICE [CLIENT…]}
shift
[ $# -gt 0 ] || set -- psql pg postgres.js psycopg asyncpg jdbc pgx ruby php
: "${PGPASSWORD:?set PGPASSWORD to the password of the service}"
howdah=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/howdah
scratch=$(mktemp -d "${TMPDIR:-/tmp}/howdah-clients.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

program() { "$howdah" url "$service" --for "$1"; }

python_program() { # CLIENT PACKAGE
  python3 -m venv venv && venv/bin/pip install -q "$2" && program "$1" >connect.py &&
    venv/bin/pip list 2>/dev/null | grep -i "^$1 " && venv/bin/python connect.py
}

node_program() { # CLIENT PACKAGE
  npm install --silent --no-audit --no-fund "$2" && program "$1" >connect.mjs &&
    npm ls "$2" | grep "$2@" && node connect.mjs
}

run() {
  case $1 in
    psql) psql --version && eval "$(program psql) -Atc 'select version()'" ;;
    pg) node_program pg pg ;;
    postgres.js) node_program postgres.js postgres ;;
    psycopg) python_program psycopg 'psycopg[binary]' ;;
    asyncpg) python_program asyncpg asyncpg ;;
    jdbc)
      # The newest release; `mvn dependency:copy` needs no project.
      mvn -q dependency:copy -Dartifact=org.postgresql:postgresql:LATEST -DoutputDirectory=jars &&
        program jdbc >Connect.java && ls jars && java -cp "$(echo jars/postgresql-*.jar)" Connect.java
      ;;
    pgx)
      go mod init connect && go get github.com/jackc/pgx/v5@latest && program pgx >connect.go &&
        grep pgx/v5 go.mod && go run connect.go
      ;;
    ruby) gem list '^pg$' && program ruby >connect.rb && ruby connect.rb ;;
    php) php --version | head -1 && program php >connect.php && php connect.php ;;
    *) echo "no such client: $1" >&2 && return 2 ;;
  esac
}

failed=0
for client in "$@"; do
  mkdir "$scratch/$client"
  if (cd "$scratch/$client" && run "$client") >"$scratch/out" 2>&1; then
    printf 'ok      %-12s %s\n' "$client" "$(tail -2 "$scratch/out" | tr -s ' \n' ' ')"
  else
    failed=1
    printf 'FAILED  %-12s\n' "$client"
    sed 's/^/        /' "$scratch/out" | tail -5
  fi
done
exit "$failed"
