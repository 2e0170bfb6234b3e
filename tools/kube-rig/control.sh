#!/usr/bin/env bash
# Controls a node that runs; `control` in its directory calls this with the directory.
#
#   control in COMMAND…   runs a command in the namespaces of the node; kubectl is in its PATH
#   control stop-api      kills the API server
#   control start-api     starts it again, and waits until it answers
#   control evict         lets the kubelet find too little memory: it evicts all pods, one by one
#   control stop-evicting lets it find enough again
set -euo pipefail
directory=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

in_node() {
  cd /
  nsenter --target "$(cat "$directory/pid")" --mount --net --pid --ipc --uts --cgroup -- \
    env "PATH=$directory/programs:/usr/sbin:/usr/bin:/sbin:/bin" \
    "KUBECONFIG=$directory/kubeconfig" "$@"
}

# A soft threshold leaves the memory of the node that pods can ask for as it is.
restart_kubelet() { # THRESHOLD…
  sed --in-place '/^evictionSoft/d' "$directory/kubelet.yaml"
  printf '%s\n' "$@" >>"$directory/kubelet.yaml"
  in_node bash "$here/daemon.sh" "$directory" stop kubelet
  in_node bash "$here/daemon.sh" "$directory" start kubelet
}

case ${2-} in
  in) in_node "${@:3}" ;;
  stop-api) in_node bash "$here/daemon.sh" "$directory" stop kube-apiserver ;;
  start-api) in_node bash "$here/daemon.sh" "$directory" start kube-apiserver ;;
  evict)
    restart_kubelet 'evictionSoft: { memory.available: 99% }' \
      'evictionSoftGracePeriod: { memory.available: 1s }'
    ;;
  stop-evicting) restart_kubelet ;;
  *)
    echo "control: unknown: ${2-nothing}; there are: in COMMAND…, stop-api, start-api, evict," \
      'stop-evicting' >&2
    exit 2
    ;;
esac
