#!/usr/bin/env bash
# Says where the kubeconfig of the cluster is that k8s-up.sh starts.

echo "${CLUSTER_DIR:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fiber/cluster}/k8s/admin.conf"
