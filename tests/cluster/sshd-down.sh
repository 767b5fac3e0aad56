#!/usr/bin/env bash
# Stops the machines that sshd-up.sh started, with all that runs in their sessions. Keeps the keys.

set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
ssh=$state/ssh

# Each sshd, its sessions and their programs are in the machine's network namespace.
for machine in a b c; do
    ip netns list 2>/dev/null | grep -q "^fib-ssh-$machine\b" || continue
    for _ in $(seq 50); do
        pids=$(ip netns pids "fib-ssh-$machine")
        [[ -n $pids ]] || break
        # shellcheck disable=SC2086 # one word a process
        kill -9 $pids 2>/dev/null || true
        sleep 0.1
    done
    # The end of a namespace takes its interfaces later.
    ip link del "fib-ssh-$machine" 2>/dev/null || true
    ip netns del "fib-ssh-$machine"
done
# The control group goes when its last process has gone.
for _ in $(seq 50); do
    rmdir /sys/fs/cgroup/{pids/,}fib-ssh-crowded 2>/dev/null || true
    [[ -d /sys/fs/cgroup/pids/fib-ssh-crowded || -d /sys/fs/cgroup/fib-ssh-crowded ]] || break
    sleep 0.1
done
umount "$ssh/caches/full" 2>/dev/null || true
rm -rf "$ssh/caches" "$ssh"/run/*
while iptables -w -D FORWARD -i fib-ssh -o fib-ssh -j ACCEPT 2>/dev/null; do :; done
ip link del fib-ssh 2>/dev/null || true
echo "the machines are stopped"
