#!/usr/bin/env bash
# Starts containerd for a node that does not share this host's Docker engine, and a registry for its
# images, unless they answer already. kubernetes-up.sh calls this with RUNTIME=containerd; kubernetes-down.sh stops
# both. Needs root, and the Docker engine that docker-up.sh starts, which has the image of the pods'
# first process.

set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
run=$k8s/run
log=$k8s/log
data=$state/containerd
socket=$containerd/containerd.sock
mkdir -p "$data"/{cni,registry} "$run" "$log" "$containerd"

install_missing "$log/containerd-install.log" containerd:containerd docker-registry:docker-registry \
    /usr/lib/cni/bridge:containernetworking-plugins ip:iproute2 ||
    fail_with_log "$log/containerd-install.log" "the packages could not be installed"

# Docker and containerd use registries at loopback addresses without a certificate.
if ! curl -sf -m 2 "http://$registry/v2/" >/dev/null; then
    cat >"$data/registry.yml" <<CONFIG
version: 0.1
storage: {filesystem: {rootdirectory: $data/registry}}
http: {addr: "$registry"}
CONFIG
    setsid nohup docker-registry serve "$data/registry.yml" >"$log/docker-registry.log" 2>&1 </dev/null &
    echo $! >"$run/docker-registry.pid"
fi

runc=$(modest_runc)
runc=${runc:-$(command -v runc)}
cat >"$data/config.toml" <<CONFIG
version = 2
root = "$data/root"
state = "$containerd/state"
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
# The plugin `firewall` lets pods through if Docker makes the host drop forwarded packets.
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
timeout 5 ctr --address "$socket" version >/dev/null 2>&1 || fail_with_log "$log/containerd.log" "containerd did not start"
answers || fail_with_log "$log/docker-registry.log" "the registry did not start"
docker save fiber-test/pause:1 | ctr --address "$socket" --namespace k8s.io images import - >/dev/null
