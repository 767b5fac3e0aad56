#!/usr/bin/env bash
# Installs Debian's package of a Docker registry, which the tests start themselves. If that is not
# possible, the tests that need a registry are skipped.

set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
if command -v docker-registry >/dev/null; then
    exit 0
fi
if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "no docker-registry is installed: the tests that need one are skipped"
    exit 0
fi
mkdir -p "$state"
install_missing "$state/registry-install.log" docker-registry:docker-registry || {
    tail -5 "$state/registry-install.log" >&2
    echo "docker-registry could not be installed: the tests that need one are skipped"
}
