#!/usr/bin/env bash
# Builds versitygw, an S3 server, where it is missing, and prints its directory: one below
# ~/.cache/howdah/s3, named by the hash of this file. The program is static and runs in a fresh
# Debian 13 as well. The first run on a machine takes about two minutes of CPU.
set -euo pipefail

module=github.com/versity/versitygw/cmd/versitygw@v1.8.0
PATH=$PATH:/usr/local/go/bin # where Go's own archive puts it

say() { printf 's3: %s\n' "$*" >&2; }
fail() {
  say "$*"
  exit 1
}

build() { # DIRECTORY
  command -v go >/dev/null || fail 'Go is missing. On Debian: apt-get install golang-go'
  # versitygw needs a newer Go than Debian's, which can fetch that by itself since 1.21.
  [ "$(printf '%s\n' go1.21 "$(go env GOVERSION)" | sort --version-sort | head -n 1)" = go1.21 ] ||
    fail "needs Go 1.21 or newer, found $(go env GOVERSION): https://go.dev/dl"
  local started=$SECONDS
  say "compiling $module …"
  export GOTOOLCHAIN=auto GOWORK=off CGO_ENABLED=0 GOBIN=$1
  nice go install -trimpath -ldflags '-s -w' "$module" >"$cache/log" 2>&1 || {
    tail -n 30 "$cache/log" >&2
    fail "compiling $module failed"
  }
  say "compiled in $((SECONDS - started)) s"
}

# Two runs wait for each other; a directory that exists is complete.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/howdah/s3
directory=$cache/$(sha256sum <"${BASH_SOURCE[0]}" | cut -c 1-16)
if [ ! -d "$directory" ]; then
  mkdir -p "$cache"
  exec 9>"$cache/lock"
  flock 9
  rm -rf "$directory.new"
  if [ ! -d "$directory" ]; then
    build "$directory.new"
    mv "$directory.new" "$directory"
  fi
fi
echo "$directory"
