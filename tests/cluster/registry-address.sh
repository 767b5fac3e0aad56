#!/usr/bin/env bash
# Prints the address of the registry that containerd-up.sh starts.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
echo "$registry"
