#!/usr/bin/env bash
# Installs Debian's package of a Docker registry, which the tests start for themselves. Where that
# can't be, they say that they are skipped.

set -euo pipefail

if command -v docker-registry >/dev/null; then
    exit 0
fi
if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "no docker-registry is installed: the tests that need one are skipped"
    exit 0
fi
state=${CLUSTER_DIR:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fiber/cluster}
mkdir -p "$state"
echo "installing docker-registry …"
export DEBIAN_FRONTEND=noninteractive
{
    apt-get -o DPkg::Lock::Timeout=600 -q update
    apt-get -o DPkg::Lock::Timeout=600 install -y -q --no-install-recommends docker-registry
} >"$state/registry-install.log" 2>&1 || {
    tail -5 "$state/registry-install.log" >&2
    echo "docker-registry could not be installed: the tests that need one are skipped"
}
