#!/usr/bin/env bash
# Stops the Grid Engine cluster that gridengine-up.sh started, with all that runs on its hosts.

set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The daemons and the processes of their jobs are in the namespaces of the hosts.
remove_hosts fib-grid head "${grid_nodes[@]}"
remove_network fib-grid
rm -rf "$grid"
echo "the Grid Engine cluster is stopped"
