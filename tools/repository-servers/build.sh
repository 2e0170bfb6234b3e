#!/usr/bin/env bash
# Builds servers that the tests keep repositories on, where they are missing: versitygw (S3),
# fake-gcs-server (Google Cloud Storage) and azurite-blob (Azure Blob Storage). Prints their
# directory: one below ~/.cache/howdah/repository-servers, named by the hash of this file. The
# programs are static, or one file for Node.js, and run in a fresh Debian 13 as well. The first run
# on a machine takes about three minutes of CPU. Needs the npm packages of this repository.
set -euo pipefail

modules=(github.com/versity/versitygw/cmd/versitygw@v1.8.0 github.com/fsouza/fake-gcs-server@v1.56.1)
azurite=azurite@3.37.0
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PATH=$PATH:/usr/local/go/bin # where Go's own archive puts it

say() { printf 'repository-servers: %s\n' "$*" >&2; }
fail() {
  say "$*"
  exit 1
}
logged() { # NAME COMMAND…
  local name=$1 started=$SECONDS
  shift
  say "making $name …"
  nice "$@" >"$cache/log" 2>&1 || {
    tail -n 30 "$cache/log" >&2
    fail "making $name failed"
  }
  say "made in $((SECONDS - started)) s"
}

build_go_programs() { # DIRECTORY
  command -v go >/dev/null || fail 'Go is missing. On Debian: apt-get install golang-go'
  # versitygw needs a newer Go than Debian's, which can fetch that by itself since 1.21.
  [ "$(printf '%s\n' go1.21 "$(go env GOVERSION)" | sort --version-sort | head -n 1)" = go1.21 ] ||
    fail "needs Go 1.21 or newer, found $(go env GOVERSION): https://go.dev/dl"
  export GOTOOLCHAIN=auto GOWORK=off CGO_ENABLED=0 GOBIN=$1
  for module in "${modules[@]}"; do
    logged "$module" go install -trimpath -ldflags '-s -w' "$module"
  done
}

# Azurite's 360 MB of packages become one file: the databases that it can also use are left out.
bundle_azurite() { # DIRECTORY
  local esbuild=$repository/node_modules/.bin/esbuild packages=$1.packages
  [ -x "$esbuild" ] || fail 'esbuild is missing: npm ci'
  rm -rf "$packages"
  mkdir "$packages"
  echo '{}' >"$packages/package.json"
  logged "$azurite" npm install --prefix "$packages" --ignore-scripts --no-audit --no-fund --no-save "$azurite"
  logged azurite-blob "$esbuild" "$packages/node_modules/azurite/dist/src/blob/main.js" --bundle --platform=node \
    --target=node20 --external:pg-hstore --log-level=error "--outfile=$1/azurite-blob"
  chmod +x "$1/azurite-blob"
  rm -rf "$packages"
}

# Two runs wait for each other; a directory that exists is complete.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/howdah/repository-servers
directory=$cache/$(sha256sum <"${BASH_SOURCE[0]}" | cut -c 1-16)
if [ ! -d "$directory" ]; then
  mkdir -p "$cache"
  exec 9>"$cache/lock"
  flock 9
  rm -rf "$directory.new"
  if [ ! -d "$directory" ]; then
    build_go_programs "$directory.new"
    bundle_azurite "$directory.new"
    mv "$directory.new" "$directory"
  fi
fi
echo "$directory"
