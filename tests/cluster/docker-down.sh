#!/usr/bin/env bash
# Stops the Docker engine that docker-up.sh started, and no other.

set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
pidfile=$state/dockerd.pid
if [[ ! -f $pidfile ]]; then
    echo "docker-up.sh has started no Docker engine"
    exit 0
fi
pid=$(<"$pidfile")
if [[ $(cat "/proc/$pid/comm" 2>/dev/null) == dockerd ]]; then
    kill "$pid"
    for _ in $(seq 300); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
fi
rm -f "$pidfile"
echo "the Docker engine (pid $pid) is stopped"
