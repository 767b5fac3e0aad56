#!/usr/bin/env bash
# Prints the path of the script that runs a command on a host of gridengine-up.sh's cluster.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
echo "$grid/enter"
