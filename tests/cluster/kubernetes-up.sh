#!/usr/bin/env bash
# Starts a Kubernetes cluster of one node for the tests, unless it answers already: etcd, API server
# (TLS, RBAC), controller manager, scheduler, kubelet and kube-proxy, without systemd. Pods are
# containers of the Docker engine that docker-up.sh starts, so images built there need no registry.
# With RUNTIME=containerd they are containers of a separate containerd, which pulls images from a
# registry (containerd-up.sh), as current clusters do. Only one of the two runs at a time.
# kubernetes-build.sh builds the programs, once. Run it as root. The state is in $CLUSTER_DIR, outside of
# the checkout; the administrator's kubeconfig is k8s/admin.conf there. kubernetes-down.sh stops the
# cluster. The cluster has no DNS.

set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
node=node1
port=16443
etcd=12379
services=10.96.0.0/24
runtime=${RUNTIME:-docker}
export PATH=$state/bin:$PATH

# Waits up to a minute for a command to succeed, while a process runs.
await() { # process command…
    local process=$1
    shift
    for _ in $(seq 600); do
        "$@" >/dev/null 2>&1 && return
        kill -0 "$(<"$k8s/run/$process.pid")" 2>/dev/null || break
        sleep 0.1
    done
    fail_with_log "$k8s/log/$process.log" "$process did not start"
}

ready() {
    [[ -s $k8s/admin.conf ]] &&
        [[ $(timeout 10 kubectl --kubeconfig "$k8s/admin.conf" get node "$node" \
            -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status} {.status.nodeInfo.containerRuntimeVersion}') \
            == "True $runtime://"* ]] &&
        timeout 10 kubectl --kubeconfig "$k8s/admin.conf" get serviceaccount default
}

[[ $runtime == docker || $runtime == containerd ]] || fail "RUNTIME is $runtime: it can be docker or containerd"
if command -v kubectl >/dev/null && ready >/dev/null 2>&1; then
    echo "a Kubernetes cluster answers: export KUBECONFIG=$k8s/admin.conf"
    exit 0
fi
[[ $(id -u) == 0 ]] || fail "no Kubernetes cluster answers, and only root can start one: run this as root"
"$here/docker-up.sh"
mkdir -p "$k8s"/{pki,etcd,kubelet,log,run,manifests}
chmod 700 "$k8s/pki" "$k8s/etcd"

# Debian may start the etcd that it installs; this cluster starts its own below.
install_missing "$k8s/log/install.log" etcd:etcd-server kubectl:kubernetes-client openssl:openssl \
    conntrack:conntrack iptables:iptables ip:iproute2 curl:curl socat:socat ebtables:ebtables \
    ethtool:ethtool gcc:gcc ||
    fail_with_log "$k8s/log/install.log" "the packages could not be installed"
"$here/kubernetes-build.sh"
"$here/kubernetes-down.sh" >/dev/null

# The first process of each pod: it owns the pod's network, forwards no signals and reaps orphans.
if ! docker image inspect fiber-test/pause:1 >/dev/null 2>&1; then
    pause=$(mktemp -d)
    cat >"$pause/pause.c" <<'C'
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void end(int signal) { (void)signal; _exit(0); }
static void reap(int signal) { (void)signal; while (waitpid(-1, 0, WNOHANG) > 0); }
int main(void) { signal(SIGINT, end); signal(SIGTERM, end); signal(SIGCHLD, reap); for (;;) pause(); }
C
    gcc -Os -static -s -o "$pause/pause" "$pause/pause.c"
    tar -C "$pause" -c pause | docker import -c 'ENTRYPOINT ["/pause"]' - fiber-test/pause:1 >/dev/null
    rm -rf "$pause"
fi

address=$(ip -4 -o addr show docker0 | awk '{ print $4 }' | cut -d/ -f1)
case $runtime in
docker)
    pods=${address%.*.*}.0.0/16
    container_runtime=(--container-runtime=docker --pod-infra-container-image=fiber-test/pause:1)
    ;;
containerd)
    "$here/containerd-up.sh"
    pods=10.244.0.0/16
    socket=$containerd/containerd.sock
    container_runtime=(--container-runtime=remote "--container-runtime-endpoint=unix://$socket" "--containerd=$socket")
    ;;
esac
service=${services%.*}.1
# Packets to a service that kube-proxy has not rewritten (yet) must not leave the machine by the
# default route.
ip route replace "$services" dev docker0

certify() { # name subject [alternative names]
    openssl ecparam -genkey -name prime256v1 -noout | openssl pkcs8 -topk8 -nocrypt -out "$1.key"
    openssl req -new -key "$1.key" -subj "$2" | openssl x509 -req -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 \
        -out "$1.crt" -extfile <(printf 'keyUsage=digitalSignature,keyEncipherment\nextendedKeyUsage=serverAuth,clientAuth\n%s\n' \
            "${3:+subjectAltName=$3}")
}
cd "$k8s/pki"
# Only once: the state of earlier starts depends on these certificates.
if [[ ! -s done ]]; then
    {
        openssl ecparam -genkey -name prime256v1 -noout -out ca.key
        openssl req -x509 -new -key ca.key -days 3650 -subj /CN=fiber-test-ca -out ca.crt
        openssl genrsa -out sa.key 2048
        openssl rsa -in sa.key -pubout -out sa.pub
        certify apiserver /CN=kube-apiserver \
            "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:$address,IP:$service"
        certify kubelet-server "/CN=$node" "DNS:$node,IP:$address,IP:127.0.0.1"
        certify kubelet-client /O=system:masters/CN=apiserver-kubelet-client
        certify admin /O=system:masters/CN=admin
        certify controller-manager /CN=system:kube-controller-manager
        certify scheduler /CN=system:kube-scheduler
        certify proxy /CN=system:kube-proxy
        certify node "/O=system:nodes/CN=system:node:$node"
        touch done && echo >done
    } 2>"$k8s/log/pki.log" || fail "no certificates could be made; the log is $k8s/log/pki.log"
fi
for user in admin controller-manager scheduler proxy node; do
    (
        umask 077
        cat >"$k8s/$user.conf" <<CONFIG
apiVersion: v1
kind: Config
clusters: [{name: fiber-test, cluster: {server: "https://127.0.0.1:$port", certificate-authority-data: $(base64 -w0 <ca.crt)}}]
users: [{name: $user, user: {client-certificate-data: $(base64 -w0 <"$user.crt"), client-key-data: $(base64 -w0 <"$user.key")}}]
contexts: [{name: fiber-test, context: {cluster: fiber-test, user: $user}}]
current-context: fiber-test
CONFIG
    )
done

cat >"$k8s/kubelet.yaml" <<CONFIG
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $address
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $k8s/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $k8s/pki/kubelet-server.crt
tlsPrivateKeyFile: $k8s/pki/kubelet-server.key
cgroupDriver: cgroupfs
failSwapOn: false
staticPodPath: $k8s/manifests
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
kubeAPIQPS: 50
kubeAPIBurst: 100
eventRecordQPS: 50
eventBurst: 100
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
syncFrequency: 5s
nodeStatusUpdateFrequency: 2s
resolvConf: ""
protectKernelDefaults: false
CONFIG

cd "$k8s"
# Starts each process with a script of its name, so the tests can start it again.
start() { # name command…
    local name=$1
    {
        printf '#!/bin/sh\ncd %q || exit\nexport PATH=%q\n' "$k8s" "$PATH"
        printf 'setsid nohup'
        printf ' %q' "${@:2}"
        printf ' >>log/%s.log 2>&1 </dev/null &\necho $! >run/%s.pid\n' "$name" "$name"
    } >"run/$name"
    chmod +x "run/$name"
    : >"log/$name.log"
    "run/$name"
}

start etcd etcd --name fiber-test --data-dir "$k8s/etcd" --logger zap \
    --listen-client-urls "http://127.0.0.1:$etcd" --advertise-client-urls "http://127.0.0.1:$etcd" \
    --listen-peer-urls "http://127.0.0.1:$((etcd + 1))" --initial-advertise-peer-urls "http://127.0.0.1:$((etcd + 1))" \
    --initial-cluster "fiber-test=http://127.0.0.1:$((etcd + 1))"
start kube-apiserver kube-apiserver "--etcd-servers=http://127.0.0.1:$etcd" "--secure-port=$port" --bind-address=0.0.0.0 \
    "--advertise-address=$address" "--service-cluster-ip-range=$services" --allow-privileged=true \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --client-ca-file=pki/ca.crt \
    --tls-cert-file=pki/apiserver.crt --tls-private-key-file=pki/apiserver.key --service-account-key-file=pki/sa.pub \
    --service-account-signing-key-file=pki/sa.key --service-account-issuer=https://kubernetes.default.svc \
    --kubelet-client-certificate=pki/kubelet-client.crt --kubelet-client-key=pki/kubelet-client.key \
    --kubelet-certificate-authority=pki/ca.crt --kubelet-preferred-address-types=InternalIP
await kube-apiserver curl -sf -m 2 --cacert pki/ca.crt "https://127.0.0.1:$port/readyz"
start kube-controller-manager kube-controller-manager --kubeconfig=controller-manager.conf \
    --authentication-kubeconfig=controller-manager.conf --authorization-kubeconfig=controller-manager.conf \
    --root-ca-file=pki/ca.crt --service-account-private-key-file=pki/sa.key --cluster-signing-cert-file=pki/ca.crt \
    --cluster-signing-key-file=pki/ca.key --use-service-account-credentials=true --leader-elect=false \
    "--service-cluster-ip-range=$services" --bind-address=127.0.0.1 --pvclaimbinder-sync-period=1s
start kube-scheduler kube-scheduler --kubeconfig=scheduler.conf --authentication-kubeconfig=scheduler.conf \
    --authorization-kubeconfig=scheduler.conf --leader-elect=false --bind-address=127.0.0.1
start kubelet kubelet --config=kubelet.yaml --kubeconfig=node.conf "--hostname-override=$node" "--node-ip=$address" \
    "--root-dir=$k8s/kubelet" "${container_runtime[@]}" "--cert-dir=$k8s/pki/kubelet"
start kube-proxy kube-proxy --kubeconfig=proxy.conf "--hostname-override=$node" "--cluster-cidr=$pods" --proxy-mode=iptables \
    --conntrack-max-per-core=0 "--bind-address=$address" --metrics-bind-address=127.0.0.1
await kubelet ready
echo "a Kubernetes cluster answers: export KUBECONFIG=$k8s/admin.conf"
