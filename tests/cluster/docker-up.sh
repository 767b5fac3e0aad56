#!/usr/bin/env bash
# Starts a Docker engine for the tests, unless one answers already. Run it as root: it installs
# missing packages of Debian and starts the daemon itself, so it needs neither systemd nor an image
# registry. Its state is in $CLUSTER_DIR, outside of the checkout. docker-down.sh stops the engine.

set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
socket=/var/run/docker.sock
mkdir -p "$state"

answers() {
    DOCKER_HOST="unix://$socket" timeout 5 docker version >"$state/docker-version.log" 2>&1
}

if command -v docker >/dev/null && answers; then
    echo "a Docker engine answers at $socket"
    exit 0
fi
if [[ $(id -u) != 0 ]]; then
    fail "no Docker engine answers at $socket, and only root can start one: run this as root, or start Docker"
fi
install_missing "$state/docker-install.log" dockerd:docker.io docker:docker.io iptables:iptables tini:tini ||
    fail_with_log "$state/docker-install.log" "docker.io could not be installed"

# An engine that is stopping does not answer, and prevents another one from starting.
for _ in $(seq 300); do
    old=$(cat /var/run/docker.pid 2>/dev/null) && [[ -n $old && $(cat "/proc/$old/comm" 2>/dev/null) == dockerd ]] || break
    sleep 0.1
done

options=()
runc=$(modest_runc)
if [[ -n $runc ]]; then
    options+=(--add-runtime "modest=$runc" --default-runtime modest)
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
fail_with_log "$state/dockerd.log" "the Docker engine did not start"
