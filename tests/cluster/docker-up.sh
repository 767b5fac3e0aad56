#!/usr/bin/env bash
# Starts a Docker engine for the tests, if none answers yet. Run it as root: it installs Debian's
# packages where they are missing, and starts the daemon by hand, so that neither systemd nor an
# image registry is needed. State is kept in $CLUSTER_DIR, outside of the checkout. docker-down.sh
# stops what this started.

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
socket=/var/run/docker.sock
state=${CLUSTER_DIR:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fiber/cluster}
mkdir -p "$state"

answers() {
    DOCKER_HOST="unix://$socket" timeout 5 docker version >"$state/docker-version.log" 2>&1
}

if command -v docker >/dev/null && answers; then
    echo "a Docker engine answers at $socket"
    exit 0
fi
if [[ $(id -u) != 0 ]]; then
    echo "error: no Docker engine answers at $socket, and only root can start one: run this as root, or start Docker" >&2
    exit 1
fi
if ! command -v dockerd >/dev/null || ! command -v docker >/dev/null || ! command -v iptables >/dev/null; then
    echo "installing docker.io and iptables …"
    export DEBIAN_FRONTEND=noninteractive
    {
        apt-get -o DPkg::Lock::Timeout=600 -q update
        apt-get -o DPkg::Lock::Timeout=600 install -y -q --no-install-recommends docker.io iptables tini
    } >"$state/docker-install.log" 2>&1 || {
        tail -20 "$state/docker-install.log" >&2
        echo "error: docker.io could not be installed; the log is $state/docker-install.log" >&2
        exit 1
    }
fi

# One that is about to stop answers no more, and lets no other start yet.
for _ in $(seq 300); do
    old=$(cat /var/run/docker.pid 2>/dev/null) && [[ -n $old && $(cat "/proc/$old/comm" 2>/dev/null) == dockerd ]] || break
    sleep 0.1
done

options=()
# Root without CAP_SYS_RESOURCE (number 24), as in some virtual machines, can't do all that
# containers may ask for.
effective=$(awk '/^CapEff/ { print $2 }' /proc/self/status)
if (((0x$effective >> 24 & 1) == 0)); then
    # A copy: the engine, and what it remembers of containers, may outlive this checkout.
    install -m 755 "$here/runc-modest" "$state/runc-modest"
    options+=(--add-runtime "modest=$state/runc-modest" --default-runtime modest)
fi

setsid nohup dockerd --host "unix://$socket" "${options[@]}" >"$state/dockerd.log" 2>&1 </dev/null &
pid=$!
echo "$pid" >"$state/dockerd.pid"
for _ in $(seq 300); do
    if answers; then
        echo "a Docker engine answers at $socket (pid $pid, log $state/dockerd.log)"
        exit 0
    fi
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
done
tail -20 "$state/dockerd.log" >&2
echo "error: the Docker engine did not start; its log is $state/dockerd.log" >&2
exit 1
