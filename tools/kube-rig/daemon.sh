#!/usr/bin/env bash
# Starts or stops a daemon in the namespaces of the node: daemon.sh DIRECTORY start|stop NAME
#
# The daemon's output is in DIRECTORY/logs. A cluster lives for minutes: etcd does not wait for the
# disk, and no component elects a leader.
set -euo pipefail
directory=$1 verb=$2 name=$3
network=$(cat "$directory/network")
address=$network.2
pki=$directory/pki
with_kubeconfig=(--kubeconfig "$pki/$name.kubeconfig")
as_component=("${with_kubeconfig[@]}" --authentication-kubeconfig "$pki/$name.kubeconfig"
  --authorization-kubeconfig "$pki/$name.kubeconfig" --cert-dir "$pki/$name" --leader-elect=false)

case $name in
  etcd)
    arguments=(--data-dir "$directory/etcd" --unsafe-no-fsync --log-level warn
      --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379
      --listen-peer-urls http://127.0.0.1:2380)
    ;;
  containerd) arguments=(--config "$directory/containerd.toml") ;;
  kube-apiserver)
    # The server makes its certificate, for its address as well, and an authority beside it.
    arguments=(--etcd-servers http://127.0.0.1:2379 --advertise-address "$address"
      --cert-dir "$pki/$name" --token-auth-file "$pki/tokens.csv" --authorization-mode Node,RBAC
      --service-account-issuer https://kubernetes.default.svc.cluster.local
      --service-account-key-file "$pki/service-accounts.key"
      --service-account-signing-key-file "$pki/service-accounts.key"
      --service-cluster-ip-range 10.96.0.0/16 --allow-privileged
      --audit-policy-file "$directory/audit.yaml" --audit-log-path "$directory/audit.log"
      --kubelet-preferred-address-types InternalIP) # nobody resolves the name of the node
    ;;
  kube-controller-manager)
    arguments=("${as_component[@]}" --use-service-account-credentials
      --service-account-private-key-file "$pki/service-accounts.key"
      --root-ca-file "$pki/kube-apiserver/apiserver.crt"
      --allocate-node-cidrs --cluster-cidr 10.244.0.0/16
      --flex-volume-plugin-dir "$directory/flexvolume")
    ;;
  kube-scheduler) arguments=("${as_component[@]}") ;;
  kubelet)
    arguments=("${with_kubeconfig[@]}" --config "$directory/kubelet.yaml" --cert-dir "$pki/$name"
      --hostname-override node --node-ip "$address")
    ;;
  kube-proxy)
    # The limits of connection tracking are this machine's: a namespace cannot set them.
    arguments=("${with_kubeconfig[@]}" --hostname-override node --proxy-mode nftables
      --cluster-cidr 10.244.0.0/16 --nodeport-addresses 0.0.0.0/0
      --conntrack-max-per-core 0 --conntrack-min 0
      --conntrack-tcp-timeout-established 0 --conntrack-tcp-timeout-close-wait 0)
    ;;
  rig-dns) arguments=("${with_kubeconfig[@]}" --listen "$address:53") ;;
  rig-volumes) arguments=("${with_kubeconfig[@]}" --directory "$directory/volumes") ;;
  *)
    echo "daemon.sh: unknown: $name" >&2
    exit 2
    ;;
esac

answers() {
  case $name in
    kube-apiserver)
      [ -s "$pki/$name/apiserver.crt" ] &&
        curl --silent --fail --cacert "$pki/$name/apiserver.crt" "https://$address:6443/readyz"
      ;;
    containerd) ctr version ;;
    *) true ;;
  esac >/dev/null 2>&1
}

case $verb in
  start)
    command=("$name" "${arguments[@]}")
    # The scheduler ends when pods change while the API server is away, and relies on a new start.
    [ "$name" != kube-scheduler ] ||
      command=(bash -c 'until "$0" "$@"; do sleep 0.2; done' "${command[@]}")
    setsid "${command[@]}" >>"$directory/logs/$name" 2>&1 </dev/null &
    echo $! >"$directory/pids/$name"
    until answers; do
      kill -0 $! 2>/dev/null || {
        tail -n 20 "$directory/logs/$name" >&2
        echo "kube-rig: $name ended" >&2
        exit 1
      }
      sleep 0.1
    done
    ;;
  stop)
    pid=$(cat "$directory/pids/$name")
    kill -KILL "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    ;;
  *)
    echo "daemon.sh: unknown: $verb; there are: start, stop" >&2
    exit 2
    ;;
esac
