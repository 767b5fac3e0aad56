#!/usr/bin/env bash
# Stops the machines that ssh-up.sh started, with all that runs in their sessions. Keeps the keys.

set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
ssh=$state/ssh

# Each sshd, its sessions and their programs are in the machine's network namespace.
remove_hosts fib-ssh a b c
# The control group goes when its last process has gone.
for _ in $(seq 50); do
    rmdir /sys/fs/cgroup/{pids/,}fib-ssh-crowded 2>/dev/null || true
    [[ -d /sys/fs/cgroup/pids/fib-ssh-crowded || -d /sys/fs/cgroup/fib-ssh-crowded ]] || break
    sleep 0.1
done
umount "$ssh/caches/full" 2>/dev/null || true
umount "$ssh/caches/readonly" 2>/dev/null || true
rm -rf "$ssh/caches" "$ssh"/run/*
remove_network fib-ssh
echo "the machines are stopped"
