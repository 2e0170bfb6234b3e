#!/usr/bin/env bash
# Makes a release twice, and installs it as users do, on a machine that has nothing of Howdah:
#
#   tools/debian13/run tools/release/try.sh [npm] [deb]     (default: both; deb needs root)
#
# Each way ends with a query through psql, and its time is printed. At the end nothing is left
# running.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/hd-release.XXXXXX")
chmod 755 "$scratch"
export HOME="$scratch/a home" HOWDAH_INSTALL=yes NO_COLOR=1 HOWDAH_PORT=18099
unset HOWDAH_HOME HD_API HD_KEY HD_PROJECT
mkdir -p "$HOME"
umask 077

fail() {
  printf 'release: %s\n' "$*" >&2
  exit 1
}
say() { printf 'release: %s\n' "$*"; }

howdah=()
finish() {
  status=$?
  [ ${#howdah[@]} = 0 ] || "${howdah[@]}" down --databases >/dev/null 2>&1 || true
  [ $status = 0 ] || tail -n 40 "$scratch"/*.log >&2
  rm -rf "$scratch"
  exit $status
}
trap finish EXIT
trap 'exit 130' INT TERM

# eventually SECONDS COMMAND…: until it succeeds.
eventually() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $deadline ] || fail "after a long time still not: $*"
    sleep 0.2
  done
}

has_ended() { ! kill -0 "$1" 2>/dev/null; }
# begin NAME: starts the control plane, and sets $plane.
begin() {
  "${howdah[@]}" up >"$scratch/$1.log" 2>&1 &
  plane=$!
  eventually 600 is_up_or_ended
  ! has_ended "$plane" || fail "$1: howdah up has ended"
}
is_up_or_ended() {
  curl --silent --fail "http://127.0.0.1:$HOWDAH_PORT/readyz" >/dev/null || has_ended "$plane"
}

# try NAME: from the start of `howdah up`, with the words of $howdah, to a row by psql; then again.
try() {
  local began=$SECONDS url
  begin "$1"
  url=$("${howdah[@]}" service create --name first 2>/dev/null | sed -n 's/^ *psql "\(.*\)"$/\1/p')
  [ "$(psql "$url" -Atc 'select 41 + 1')" = 42 ] || fail "$1: psql got no answer"
  say "$1: from the start to psql in $((SECONDS - began)) s"
  "${howdah[@]}" down >/dev/null
  eventually 60 has_ended "$plane"
  [ "$(psql "$url" -Atc 'select 41 + 1')" = 42 ] || fail "$1: the database stopped with the control plane"
  begin "$1"
  say "$1: second start: $(sed -n 's/.*serving //p' "$scratch/$1.log")"
  "${howdah[@]}" service delete first --yes >/dev/null 2>&1
  "${howdah[@]}" down --databases >/dev/null
  eventually 60 has_ended "$plane"
}

./howdah --version >/dev/null # installs Node.js where it is missing
command -v psql >/dev/null || fail 'psql is missing: apt-get install postgresql-client'
npm run --silent release -- --out "$scratch/release"
npm run --silent release -- --out "$scratch/again" >/dev/null
cmp "$scratch/release/SHA256SUMS" "$scratch/again/SHA256SUMS" || fail 'two releases of a commit differ'
(cd "$scratch/release" && sha256sum --quiet --check SHA256SUMS)

version=$(node -p 'require("./package.json").version')
ways=("$@")
[ $# -gt 0 ] || ways=(npm deb)
for way in "${ways[@]}"; do
  began=$SECONDS
  case $way in
    npm)
      npm install --silent --prefix "$scratch/npm" --global "$scratch/release/howdah-$version.tgz"
      howdah=("$scratch/npm/bin/howdah")
      ;;
    deb)
      apt-get -qq -y install "$scratch/release/howdah_${version}_all.deb" >"$scratch/apt.log" 2>&1
      howdah=(/usr/bin/howdah)
      ;;
    *) fail "unknown way: $way; there are: npm, deb" ;;
  esac
  say "$way: installed in $((SECONDS - began)) s"
  [ "$("${howdah[@]}" --version)" = "$version" ] || fail "$way: another version"
  try "$way"
  case $way in
    deb)
      begin purge
      "${howdah[@]}" service create --name kept >/dev/null 2>&1
      "${howdah[@]}" down --databases >/dev/null
      apt-get -qq -y remove howdah >>"$scratch/apt.log" 2>&1
      [ -d /var/lib/howdah/home/data/services ] || fail 'deb: remove deleted the databases'
      apt-get -qq -y purge howdah >>"$scratch/apt.log" 2>&1
      [ -d /var/lib/howdah/home/data/services ] || fail 'deb: purge deleted databases without a yes'
      rm -rf /var/lib/howdah/home
      howdah=()
      ;;
  esac
done
say 'all ways work'
