#!/usr/bin/env bash
# The first process of a node's namespaces: node.sh DIRECTORY PROGRAMS IMAGE
#
# `run` starts it and reads its process id, writes the network (10.199.N) to it and reads "ready".
# Standard output is for that, descriptor 6 for people. Then it collects the processes whose parents
# have ended, for as long as the node runs.
set -euo pipefail
directory=$1 programs=$2 image=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$directory"
exec 3>&1 >&6 2>&6 6>&-

# /proc is still this machine's.
read -r pid _ </proc/self/stat
echo "$pid" >pid
echo "$pid" >&3
read -r network
address=$network.2
echo "$network" >network

# ---- Mounts: whatever the node writes is below its directory -------------------------------------

mkdir var-lib var-log programs image pki pids logs cni volumes
mount --bind "$programs" programs
mount --bind "$image" image
mount --bind var-lib /var/lib
mount --bind var-log /var/log
mount -t tmpfs tmpfs /run
mount -t proc proc /proc

# These show the network and the cgroups of the process that mounted them.
has_cgroup2=
[ ! -e /sys/fs/cgroup/cgroup.controllers ] || has_cgroup2=yes
umount --recursive --lazy /sys
mount -t sysfs sysfs /sys
if [ -n "$has_cgroup2" ]; then
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
  mkdir /sys/fs/cgroup/node # a cgroup with children has no processes
  echo $$ >/sys/fs/cgroup/node/cgroup.procs
else
  mount -t tmpfs tmpfs /sys/fs/cgroup
  while IFS=: read -r _ controllers _; do
    [ -n "$controllers" ] || continue
    tree=/sys/fs/cgroup/${controllers#name=}
    mkdir "$tree"
    mount -t cgroup -o "${controllers/#name=/none,name=}" cgroup "$tree"
  done </proc/self/cgroup
fi

# The kubelet changes these settings of the whole machine, unless it finds them as it wants them.
mkdir settings
while read -r setting value; do
  echo "$value" >"settings/${setting//\//.}"
  mount --bind "settings/${setting//\//.}" "/proc/sys/$setting"
done <<END
kernel/panic 10
kernel/panic_on_oops 1
vm/overcommit_memory 1
vm/panic_on_oom 0
END

truncate --size=40G volumes.img
mkfs.btrfs --quiet volumes.img >/dev/null # it prints notes even then
mount -o loop,noatime volumes.img volumes
btrfs quota enable volumes
mount --make-rshared / # as the kubelet wants it; of this namespace only

# ---- Network -------------------------------------------------------------------------------------

hostname node
ip link set lo up
ip address add "$address/24" dev eth0
ip link set eth0 up
ip route add default via "$network.1"
echo 1 >/proc/sys/net/ipv4/ip_forward
# The kubelet asks nobody who they are: only the node reaches it.
nft 'add table inet rig; add chain inet rig input { type filter hook input priority 0; }
  add rule inet rig input iifname eth0 tcp dport 10248-10259 drop'
# This machine has no way back to the addresses of pods.
nft 'add chain inet rig leave { type nat hook postrouting priority 100; }
  add rule inet rig leave oifname eth0 ip saddr 10.244.0.0/16 masquerade'

# ---- Configuration -------------------------------------------------------------------------------

openssl ecparam -name prime256v1 -genkey -noout -out pki/service-accounts.key

# Users of this machine reach the API server too: it knows each component by a random token.
add_user() { # FILE USER [GROUP]
  echo "$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n'),$2,$1${3:+,$3}" >>pki/tokens.csv
}
write_kubeconfig() { # NAME FILE
  cat >"$2" <<END
apiVersion: v1
kind: Config
current-context: kube-rig
clusters:
  - name: kube-rig
    cluster:
      server: https://$address:6443
      certificate-authority-data: $(base64 --wrap=0 pki/kube-apiserver/apiserver.crt)
users:
  - name: $1
    user: { token: $(sed -En "s/,[^,]*,$1(,.*)?\$//p" pki/tokens.csv) }
contexts:
  - name: kube-rig
    context: { cluster: kube-rig, user: $1 }
END
}
add_user admin admin system:masters
add_user kube-controller-manager system:kube-controller-manager
add_user kube-scheduler system:kube-scheduler
add_user kubelet system:node:node system:nodes
add_user kube-proxy system:kube-proxy
add_user rig-dns rig-dns system:masters
add_user rig-volumes rig-volumes system:masters

# A machine that is itself a container may not lower the scores of the out-of-memory killer, and
# has none of AppArmor's programs.
cat >containerd.toml <<END
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/howdah/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$directory/cni"
END
cat >cni/kube-rig.conflist <<END
{ "cniVersion": "1.0.0", "name": "kube-rig", "plugins": [
  { "type": "bridge", "bridge": "pods", "isGateway": true, "hairpinMode": true,
    "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.244.0.0/24" }]],
      "routes": [{ "dst": "0.0.0.0/0" }], "dataDir": "/run/cni" } } ] }
END
: >resolv.conf
# A test sees in it which rights the control plane uses.
cat >audit.yaml <<END
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - { level: Metadata, users: [admin] }
  - { level: Metadata, userGroups: ["system:serviceaccounts:howdah"] }
  - { level: None }
END
cat >kubelet.yaml <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: { anonymous: { enabled: true }, webhook: { enabled: false } }
authorization: { mode: AlwaysAllow }
cgroupDriver: cgroupfs
clusterDNS: [$address]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
enforceNodeAllocatable: []
evictionHard: { memory.available: 100Mi, nodefs.available: 1Gi, imagefs.available: 1Gi }
evictionMaxPodGracePeriod: 60
evictionPressureTransitionPeriod: 1s
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100 # never: an image cannot be pulled again
makeIPTablesUtilChains: false
nodeStatusUpdateFrequency: 5s
resolvConf: $directory/resolv.conf
serializeImagePulls: false
volumePluginDir: $directory/flexvolume
END

# ---- Daemons -------------------------------------------------------------------------------------

export PATH=$directory/programs:/usr/sbin:/usr/bin:/sbin:/bin
start() { bash "$here/daemon.sh" "$directory" start "$1"; }
import_images() {
  start containerd
  ctr --namespace k8s.io images import programs/pause.tar >/dev/null
  ctr --namespace k8s.io images import image/postgresql.tar >/dev/null
}
import_images &
import=$!
start etcd
start kube-apiserver
write_kubeconfig admin kubeconfig
chmod 600 kubeconfig
export KUBECONFIG=$directory/kubeconfig
for name in kube-controller-manager kube-scheduler kubelet kube-proxy rig-dns rig-volumes; do
  write_kubeconfig $name pki/$name.kubeconfig
done
kubectl create --filename "$here/snapshots.yaml" >/dev/null
wait "$import"
for name in kube-controller-manager kube-scheduler kubelet kube-proxy rig-dns rig-volumes; do
  start $name
done
kubectl create --filename - >/dev/null <<END
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: { name: howdah, annotations: { storageclass.kubernetes.io/is-default-class: "true" } }
provisioner: kube-rig/btrfs
reclaimPolicy: Delete
allowVolumeExpansion: true
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: { name: howdah }
driver: kube-rig/btrfs
deletionPolicy: Delete
END
for object in node/node serviceaccount/default; do
  kubectl wait --timeout=300s --for=create $object >/dev/null
done
kubectl wait --timeout=300s --for=condition=Ready node/node >/dev/null
echo ready >&3
sleep infinity &
wait
