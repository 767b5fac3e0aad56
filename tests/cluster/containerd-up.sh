#!/usr/bin/env bash
# Starts containerd for the nodes of a cluster that share no engine with this host, and a registry
# to which images are pushed for them, if they do not answer yet. Called by k8s-up.sh with
# RUNTIME=containerd; k8s-down.sh stops both. Needs root, and the Docker engine that docker-up.sh
# starts, which hands over the image of a pod's first process.

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
state=${CLUSTER_DIR:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fiber/cluster}
run=$state/k8s/run
log=$state/k8s/log
data=$state/containerd
# Sockets' paths have to be short.
runtime=/run/fiber-containerd
socket=$runtime/containerd.sock
registry=$("$here/registry-address.sh")
mkdir -p "$data"/{cni,registry} "$run" "$log" "$runtime"

fail() {
    tail -20 "$1" >&2
    echo "error: $2; the log is $1" >&2
    exit 1
}

packages=()
for need in containerd:containerd docker-registry:docker-registry /usr/lib/cni/bridge:containernetworking-plugins ip:iproute2; do
    command -v "${need%%:*}" >/dev/null || packages+=("${need##*:}")
done
if ((${#packages[@]})); then
    echo "installing ${packages[*]} …"
    export DEBIAN_FRONTEND=noninteractive
    {
        apt-get -o DPkg::Lock::Timeout=600 -q update
        apt-get -o DPkg::Lock::Timeout=600 install -y -q --no-install-recommends "${packages[@]}"
    } >"$log/containerd-install.log" 2>&1 || fail "$log/containerd-install.log" "the packages could not be installed"
fi

# Without a certificate: that is allowed for addresses of this host, to Docker as to containerd.
if ! curl -sf -m 2 "http://$registry/v2/" >/dev/null; then
    cat >"$data/registry.yml" <<CONFIG
version: 0.1
storage: {filesystem: {rootdirectory: $data/registry}}
http: {addr: "$registry"}
CONFIG
    setsid nohup docker-registry serve "$data/registry.yml" >"$log/docker-registry.log" 2>&1 </dev/null &
    echo $! >"$run/docker-registry.pid"
fi

# Root without CAP_SYS_RESOURCE can't do all that containers may ask for: see docker-up.sh.
runc=$(command -v runc)
if (((0x$(awk '/^CapEff/ { print $2 }' /proc/self/status) >> 24 & 1) == 0)); then
    install -m 755 "$here/runc-modest" "$state/runc-modest"
    runc=$state/runc-modest
fi
cat >"$data/config.toml" <<CONFIG
version = 2
root = "$data/root"
state = "$runtime/state"
[grpc]
address = "$socket"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "docker.io/fiber-test/pause:1"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "$data/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "$runc"
[plugins."io.containerd.grpc.v1.cri".registry.mirrors."$registry"]
endpoint = ["http://$registry"]
CONFIG
# The firewall's part lets pods through where Docker has the host drop what it forwards.
cat >"$data/cni/10-fiber.conflist" <<CONFIG
{
  "cniVersion": "0.4.0",
  "name": "fiber",
  "plugins": [
    {
      "type": "bridge", "bridge": "fiber-cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
      "ipam": {
        "type": "host-local", "dataDir": "$data/addresses",
        "ranges": [[{"subnet": "10.244.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "firewall"}
  ]
}
CONFIG

answers() {
    timeout 5 ctr --address "$socket" version >/dev/null 2>&1 && curl -sf -m 2 "http://$registry/v2/" >/dev/null
}

if ! timeout 5 ctr --address "$socket" version >/dev/null 2>&1; then
    setsid nohup containerd --config "$data/config.toml" >"$log/containerd.log" 2>&1 </dev/null &
    echo $! >"$run/containerd.pid"
fi
for _ in $(seq 300); do
    answers && break
    sleep 0.1
done
timeout 5 ctr --address "$socket" version >/dev/null 2>&1 || fail "$log/containerd.log" "containerd did not start"
answers || fail "$log/docker-registry.log" "the registry did not start"
docker save fiber-test/pause:1 | ctr --address "$socket" --namespace k8s.io images import - >/dev/null
