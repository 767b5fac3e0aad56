#!/usr/bin/env bash
# Prints the path of ssh's configuration for the machines that ssh-up.sh starts.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
echo "$state/ssh/config"
