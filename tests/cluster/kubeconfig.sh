#!/usr/bin/env bash
# Prints the path of the kubeconfig of the cluster that kubernetes-up.sh starts.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
echo "$k8s/admin.conf"
