#!/usr/bin/env bash
# Stops the Slurm cluster that slurm-up.sh started, with its jobs' processes, and no other.

set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Stops daemons, and kills those that do not end within 2 s.
stop() { # command pidfile…
    local command=$1 pidfile pid pids=()
    shift
    for pidfile in "$@"; do
        [[ -s $pidfile ]] || continue
        pid=$(<"$pidfile")
        [[ $(cat "/proc/$pid/comm" 2>/dev/null) != "$command" ]] || pids+=("$pid")
    done
    ((${#pids[@]})) || return 0
    kill "${pids[@]}" 2>/dev/null || true
    for _ in $(seq 20); do
        kill -0 "${pids[@]}" 2>/dev/null || break
        sleep 0.1
    done
    kill -9 "${pids[@]}" 2>/dev/null || true
    rm -f "$@"
}

if ! compgen -G "$slurm/run/*.pid" >/dev/null; then
    echo "slurm-up.sh has started no Slurm cluster"
    exit 0
fi
export SLURM_CONF=$slurm/slurm.conf
jobs() {
    timeout 5 squeue -h -o %A 2>/dev/null
}
# shellcheck disable=SC2046 # one word a job
timeout 5 scancel $(jobs) >/dev/null 2>&1 || true
for _ in $(seq 50); do
    [[ -n $(jobs) ]] || break
    sleep 0.1
done
stop slurmd "$slurm"/run/slurmd-*.pid
stop slurmctld "$slurm/run/slurmctld.pid"
stop munged "$slurm/run/munged.pid"
for directory in /sys/fs/cgroup/*/slurm_n[0-9]*; do
    [[ ! -d $directory ]] || find "$directory" -depth -type d -exec rmdir {} \; 2>/dev/null || true
done
echo "the Slurm cluster is stopped"
