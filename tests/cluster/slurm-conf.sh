#!/usr/bin/env bash
# Prints the configuration of the tests' Slurm cluster: $SLURM_CONF, or that of the cluster that
# slurm-up.sh starts.

set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
echo "${SLURM_CONF:-$slurm/slurm.conf}"
