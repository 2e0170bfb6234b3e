#!/usr/bin/env bash
# Builds what is missing and prints the directory that holds it: a directory below
# ~/.cache/howdah/kube-rig, named by the hash of its sources.
#
#   build.sh packages   installs what the node runs on (prints nothing)
#   build.sh programs   Kubernetes and etcd, and the image of the container that holds a pod
#   build.sh image      the image of PostgreSQL
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=../debian13/mirror.sh
. ../debian13/mirror.sh

cache=${XDG_CACHE_HOME:-$HOME/.cache}/howdah/kube-rig
kubernetes=v1.36.3
PATH=$PATH:/usr/local/go/bin:/usr/sbin:/sbin # where Go's own archive and Debian put programs

say() { printf 'kube-rig: %s\n' "$*" >&2; }
fail() {
  say "$*"
  exit 1
}

# Installs the packages of commands that are missing.
need() { # COMMAND:PACKAGE…
  local entry commands=() packages=()
  for entry; do
    command -v "${entry%:*}" >/dev/null || {
      commands+=("${entry%:*}")
      packages+=("${entry#*:}")
    }
  done
  [ ${#packages[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ] || [ "${HOWDAH_INSTALL-}" = no ] || ! command -v apt-get >/dev/null; then
    fail "these commands are missing: ${commands[*]}. On Debian: apt-get install ${packages[*]}"
  fi
  step "installing ${packages[*]}" install "${packages[@]}"
}
install() {
  apt-get --quiet update
  DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes --no-install-recommends \
    -o DPkg::Lock::Timeout=120 install "$@"
}

# Runs a command with a line when it begins, each minute and when it has ended. Its output is in
# $log.
step() { # TITLE COMMAND…
  local title=$1 started=$SECONDS status=0
  shift
  say "$title …"
  exec 7> >(each_minute "$title" >&2)
  "$@" >"$log" 2>&1 7>&- || status=$?
  exec 7>&-
  if [ $status != 0 ]; then
    tail -n 30 "$log" >&2
    fail "$title failed after $((SECONDS - started)) s"
  fi
  say "$title: $((SECONDS - started)) s"
}
each_minute() { # TITLE: until its input ends
  local started=$SECONDS
  while true; do
    read -r -t 60 || [ $? -gt 128 ] || return 0
    say "$1 … $((SECONDS - started)) s"
  done
}

# An image in Docker's archive format, which containerd imports: the one layer $scratch/layer.tar.
write_image() { # NAME CONFIG FILE
  cat >"$scratch/config.json" <<END
{"architecture": "$(dpkg --print-architecture)", "os": "linux", "config": $2, "rootfs":
 {"type": "layers", "diff_ids": ["sha256:$(sha256sum <"$scratch/layer.tar" | cut -d ' ' -f 1)"]}}
END
  cat >"$scratch/manifest.json" <<END
[{"Config": "config.json", "RepoTags": ["$1"], "Layers": ["layer.tar"]}]
END
  tar --create --file "$3" --directory "$scratch" manifest.json config.json layer.tar
}

make_programs() { # DIRECTORY
  need go:golang-go
  # go.mod names a newer Go than Debian's, which can fetch that by itself since 1.21.
  [ "$(printf '%s\n' go1.21 "$(go env GOVERSION)" | sort --version-sort | head -n 1)" = go1.21 ] ||
    fail "needs Go 1.21 or newer, found $(go env GOVERSION): https://go.dev/dl"
  [ -z "$(gofmt -l .)" ] || fail "these are not as gofmt writes them: $(gofmt -l .)"
  export GOTOOLCHAIN=auto GOWORK=off GOFLAGS=-buildvcs=false CGO_ENABLED=0

  local flags='-s -w' package
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $package.gitVersion=$kubernetes -X $package.gitMajor=1 -X $package.gitMinor=36"
  done
  step 'downloading Go modules' go list -deps . ./pause
  step "compiling Kubernetes ($(grep -vc '^go: ' "$log") packages)" compile "$flags" "$1"
  say "$(tail -n 1 "$log")"
  local name
  for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl \
    rig-dns rig-volumes; do
    ln -s rig "$1/$name"
  done

  go build -trimpath -ldflags "$flags" -o "$scratch/pause" ./pause
  tar --create --file "$scratch/layer.tar" --directory "$scratch" pause
  write_image localhost/howdah/pause:1 '{"Entrypoint": ["/pause"]}' "$1/pause.tar"
}
compile() { # LINKER-FLAGS DIRECTORY
  local TIMEFORMAT='%U user, %S system CPU seconds'
  time nice go build -trimpath -ldflags "$1" -o "$2/rig" .
}

make_image() { # DIRECTORY
  need mmdebstrap:mmdebstrap
  step 'making the image of PostgreSQL' debian_with_postgresql
  local environment='"PATH=/usr/lib/postgresql/17/bin:/usr/bin:/bin", "LANG=C.UTF-8"'
  write_image localhost/howdah/postgresql:17 "{\"User\": \"26\", \"Env\": [$environment]}" \
    "$1/postgresql.tar"
}
# The user has the number that it has in CloudNativePG's images. Nothing reads the manuals,
# PostgreSQL goes without its compiler of expressions where LLVM (130 MB) is missing, and of the
# services of Amazon only S3 is known (100 MB).
debian_with_postgresql() {
  local mirror=${DEBIAN_MIRROR:-$(mirror_of_this_machine)}
  local botocore=/usr/lib/python3/dist-packages/botocore/data
  mmdebstrap --variant=essential --components=main \
    --include=postgresql-17,postgresql-17-timescaledb,postgresql-17-pgvector,barman-cli-cloud \
    --aptopt='APT::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/lib/*/libLLVM*' \
    --dpkgopt='path-exclude=/usr/lib/postgresql/*/lib/llvmjit*' \
    --dpkgopt='path-exclude=/usr/lib/postgresql/*/lib/bitcode/*' \
    --dpkgopt="path-exclude=$botocore/*" --dpkgopt="path-include=$botocore/*.json" \
    --dpkgopt="path-include=$botocore/s3/*" \
    --essential-hook='mkdir -p "$1/etc/postgresql-common"
      echo "create_main_cluster = false" >"$1/etc/postgresql-common/createcluster.conf"
      echo "postgres:x:26:" >>"$1/etc/group"
      echo "postgres:x:26:26:PostgreSQL:/var/lib/postgresql:/bin/bash" >>"$1/etc/passwd"' \
    trixie "$scratch/layer.tar" ${mirror:+"$mirror"}
}

# Two runs that need the same wait for each other; a directory that exists is complete.
built() { # NAME SOURCE…
  local directory hash
  hash=$(cat "${@:2}" | sha256sum | cut -c 1-16)
  directory=$cache/$1-$hash
  if [ ! -d "$directory" ]; then
    mkdir -p "$cache"
    exec 9>"$cache/$1.lock"
    flock 9
    rm -rf "$directory.new"
    if [ ! -d "$directory" ]; then
      mkdir "$directory.new"
      "make_$1" "$directory.new"
      mv "$directory.new" "$directory"
    fi
  fi
  echo "$directory"
}

scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/kube-rig-build.XXXXXX")
log=$scratch/log
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' HUP INT TERM
case ${1-} in
  packages)
    need containerd:containerd runc:runc /usr/lib/cni/bridge:containernetworking-plugins \
      nft:nftables ip:iproute2 mkfs.btrfs:btrfs-progs openssl:openssl curl:curl \
      pgbouncer:pgbouncer # the tests make an image of it
    ;;
  programs) built programs build.sh go.mod go.sum ./*.go pause/*.go ;;
  image) built image build.sh ;;
  *) fail "unknown: ${1-nothing}; there are: packages, programs, image" ;;
esac
