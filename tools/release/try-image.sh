#!/usr/bin/env bash
# Makes the image of a release and runs it as users do, with podman: `tools/release/try-image.sh`, as
# root. Each container is stopped, killed, replaced, or refused; databases outlive it in its volume.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

say() { printf 'image: %s\n' "$*"; }
fail() {
  say "$*" >&2
  exit 1
}
for command in podman mmdebstrap psql; do
  command -v "$command" >/dev/null || fail "$command is missing: apt-get install podman mmdebstrap postgresql-client"
done

scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/hd-image.XXXXXX")
name=howdah-try-$$
# crun refuses a machine with both versions of cgroups; limits of this machine's root are no lower.
engine=(podman)
! command -v runc >/dev/null || engine+=(--runtime runc)
limits=(--ulimit "nofile=$(ulimit -Hn):$(ulimit -Hn)" --ulimit nproc=10000:10000)
finish() {
  status=$?
  [ $status = 0 ] || podman logs "$name" 2>&1 | tail -n 30 >&2
  podman rm --force --ignore "$name" >/dev/null
  [ -z "${image-}" ] || podman rmi --force "$image" >/dev/null 2>&1 || true
  rm -rf "$scratch"
  exit $status
}
trap finish EXIT
trap 'exit 130' INT TERM

# start OPTION…: a container of the image, with the volume of this test.
start() {
  "${engine[@]}" run --detach --name "$name" "${limits[@]}" --network host --volume "$scratch/data:/data" \
    --env HOWDAH_HOST=127.0.0.1 --env HOWDAH_PORT=18097 --env HOWDAH_PORT_RANGE=21000-21050 "$@" "$image" >/dev/null
}
remove() { podman rm --force "$name" >/dev/null; }
until_up() {
  local deadline=$((SECONDS + 300))
  until curl --silent --fail http://127.0.0.1:18097/readyz >/dev/null; do
    [ "$(podman inspect --format '{{.State.Running}}' "$name")" = true ] || fail 'the container has ended'
    [ $SECONDS -lt $deadline ] || fail 'it is not up'
    sleep 0.2
  done
}
row() { psql "$url" -Atc 'table kept'; }
until_row() {
  local deadline=$((SECONDS + 300))
  until [ "$(row 2>/dev/null)" = 42 ]; do
    [ $SECONDS -lt $deadline ] || fail "$1: the row is gone"
    sleep 0.2
  done
  say "$1: the row is there"
}
stop() {
  local began=$SECONDS
  podman stop --time 10 "$name" >/dev/null
  [ "$(podman inspect --format '{{.State.ExitCode}}' "$name")" = 0 ] || fail 'it did not stop by itself'
  podman logs "$name" 2>&1 | grep -q 'databases stopped' || fail 'the databases were not stopped'
  say "stopped with its databases in $((SECONDS - began)) s"
}

npm run --silent release -- --image --out "$scratch/release"
image=$(podman load --quiet --input "$scratch"/release/*.image.tar | sed 's/^Loaded image: //')
mkdir "$scratch/data"
chmod 755 "$scratch"
chown 4711:4711 "$scratch/data"

start
podman wait "$name" >/dev/null
podman logs "$name" 2>&1 | grep -q -- '--user 4711:4711' || fail 'it does not say whose the volume is'
say "a volume of another user: refused, with the option that helps"
remove

began=$SECONDS
start --user 4711:4711 --read-only --tmpfs /tmp
until_up
url=$("${engine[@]}" exec "$name" howdah service create --name first 2>/dev/null |
  sed -n 's/^ *psql "\(.*\)"$/\1/p' | sed "s#/data/ca/#$scratch/data/ca/#")
[ "$(psql "$url" -Atqc 'create table kept as select 42' -c 'table kept')" = 42 ] || fail 'psql got no answer'
say "any user id and a root that cannot be written: up to psql in $((SECONDS - began)) s"
podman kill "$name" >/dev/null
remove
start --user 4711:4711
until_row 'killed, and another container with the same volume'
stop
remove
start --user 4711:4711 --cap-drop all
until_row 'without capabilities'
stop
say 'the image works'
