#!/usr/bin/env bash
# Stops the Kubernetes cluster that kubernetes-up.sh started, and removes its pods' containers. Keeps the
# cluster's state for the next start, unless RESET=1 is set.

set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Some processes ignore SIGTERM: an API server whose etcd is gone, for example.
stop() {
    local pidfile=$k8s/run/$1.pid pid
    [[ -s $pidfile ]] || return 0
    pid=$(<"$pidfile")
    if [[ $(cat "/proc/$pid/comm" 2>/dev/null) == "${1:0:15}" ]]; then
        kill "$pid" 2>/dev/null || true
        for _ in $(seq 50); do
            [[ $(cut -d' ' -f3 "/proc/$pid/stat" 2>/dev/null || true) == [!Z] ]] || break
            sleep 0.1
        done
        kill -9 "$pid" 2>/dev/null || true
    fi
    rm -f "$pidfile"
}

for process in kube-proxy kubelet kube-scheduler kube-controller-manager kube-apiserver etcd; do
    stop "$process"
done
if command -v docker >/dev/null && pods=$(timeout 30 docker ps -aq --filter label=io.kubernetes.pod.name) 2>/dev/null; then
    # shellcheck disable=SC2086 # one word a container
    [[ -z $pods ]] || docker rm -f $pods >/dev/null 2>&1 || true
fi
containers() {
    timeout 60 ctr --address "$containerd/containerd.sock" --namespace k8s.io "$@"
}
if [[ -s $k8s/run/containerd.pid ]]; then
    for container in $(containers containers ls -q 2>/dev/null); do
        containers tasks rm --force "$container" >/dev/null 2>&1 || true
        containers containers rm "$container" >/dev/null 2>&1 || true
    done
    stop containerd
    stop docker-registry
    # The shared memory, network and address of each pod.
    awk -v root="$containerd/" 'index($2, root) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount
    ip netns list | awk '/^cni-/ { print $1 }' | xargs -r -n1 ip netns delete
    rm -rf "$containerd" "$state/containerd/addresses"
fi
if [[ ${RESET:-0} == 1 ]]; then
    awk -v root="$k8s/kubelet" 'index($2, root) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount
    rm -rf "$k8s" "$state/containerd"
    for table in nat filter mangle; do
        iptables-save -t "$table" | grep -v KUBE- | iptables-restore -T "$table"
    done
fi
echo "the Kubernetes cluster is stopped"
