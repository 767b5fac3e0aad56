#!/usr/bin/env bash
# A bad day, played by hand: what an operator reads when something breaks.
#
#   hand-44.sh FIBER ENGINE CASE
#
# FIBER   the command with all backends (make install FEATURES=docker,kubernetes,slurm,gridengine,ssh)
# ENGINE  slurm, gridengine, docker, kubernetes, ssh or all
# CASE    terminal, restart, node, large, folder or all
#
# Run it as root in the checkout, after `make cluster-up gridengine-up`. It stops and starts daemons
# of the tests' clusters by their pid files: run nothing else on them meanwhile. All output is
# indented; lines that begin with `==` are the script's.

set -uo pipefail

(($# == 3)) || { sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2; }
fiber=$(readlink -f "$1") engine=$2 case=$3
[[ -x $fiber && -f tests/cluster/lib.sh ]] || { echo "no command, or not in the checkout"; exit 2; }
. tests/cluster/lib.sh
if [[ $engine == all ]]; then
    for engine in slurm gridengine docker kubernetes ssh; do "$0" "$fiber" "$engine" "$case"; done
    exit
fi
if [[ $case == all ]]; then
    for case in terminal restart node large folder; do "$0" "$fiber" "$engine" "$case"; done
    exit
fi

# As `make test-cluster` sets them.
KUBECONFIG=$(tests/cluster/kubeconfig.sh) SLURM_CONF=$(tests/cluster/slurm-conf.sh)
export KUBECONFIG SLURM_CONF FIBER_BACKEND=$engine
FIBER_SSH_CONFIG=$(tests/cluster/ssh-config.sh)
export FIBER_SSH_CONFIG FIBER_SSH_HOSTS=a:2,b:2
sleep=$(readlink -f "$(command -v sleep)")
work=$(mktemp -d) name=hand-$$-$case
trap 'rm -rf "$work"' EXIT

say() { echo; echo "== $engine, $case: $*"; }
show() { sed 's/^/    /'; }
# Runs the command where sessions of the engine are started.
f() {
    if [[ $engine == gridengine ]]; then
        timeout 900 "$(tests/cluster/gridengine-enter.sh)" head "$fiber" "$@"
    else
        timeout 900 "$fiber" "$@"
    fi
}
# Shows a command, what it prints, its exit code and its time.
read_it() { # words…
    local begin=$EPOCHREALTIME code
    say "\$ fiber $*"
    f "$@" >"$work/said" 2>&1
    code=$?
    tail -15 "$work/said" | cut -c1-400 | show
    echo "    -> exit code $code after $(python3 -c "print(round($EPOCHREALTIME - $begin, 1))") s"
}

# The words of `fiber run` for a map of $1 tasks of a second, as a session of the engine.
session=()
session_of() { # tasks
    local items=()
    mapfile -t items < <(yes 1 | head -"$1")
    case $engine in
    slurm) session=(--nodes 2 --cpu 2 -e TMPDIR=/tmp "--slurm=--no-kill" "$fiber") ;;
    gridengine) session=(--pe fiber --slots 4 -e TMPDIR=/tmp "$fiber") ;;
    docker | kubernetes) session=(-e "FIBER_BUNDLE=$sleep" "$fiber") && export FIBER_BUNDLE=$sleep ;;
    ssh) session=("$fiber") ;;
    esac
    session+=(map -p 4 -- "$sleep" {} ::: "${items[@]}")
}

# Runs the rest of the words on a pty that closes after $1 seconds.
lose_terminal() { # seconds words…
    python3 - "$@" <<'PYTHON'
import os, pty, select, sys, time
seconds, words = float(sys.argv[1]), sys.argv[2:]
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(words[0], words)
end, seen = time.monotonic() + seconds, b""
while time.monotonic() < end:
    if select.select([terminal], [], [], 0.2)[0]:
        try:
            seen += os.read(terminal, 4096)
        except OSError:
            break
os.close(terminal)
begin = time.monotonic()
_, status = os.waitpid(pid, 0)
text = seen.decode(errors="replace").replace("\r", "\n").strip().splitlines()
print("on the terminal, the last lines:", *text[-3:], sep="\n  ")
code = os.waitstatus_to_exitcode(status)
print(f"the command ended {time.monotonic() - begin:.1f} s after its terminal, with {code}")
PYTHON
}

terminal() {
    session_of 600
    say "a terminal that closes after 25 s under \`fiber run -a\`"
    local enter=()
    [[ $engine != gridengine ]] || enter=("$(tests/cluster/gridengine-enter.sh)" head)
    local named=(--name "$name")
    [[ $engine != ssh ]] || named=()
    # shellcheck disable=SC2016 # the inner shell expands it
    lose_terminal 25 sh -c 'log=$1; shift; exec "$@" 2>"$log"' - "$work/log" \
        ${enter[@]+"${enter[@]}"} "$fiber" run ${named[@]+"${named[@]}"} -a "${session[@]}" | show
    say "standard error, which was a file:"
    show <"$work/log"
    read_it ps
    if [[ $engine != ssh ]]; then
        read_it top --once "$name"
        read_it logs --tail 3 "$name"
        read_it kill "$name"
    fi
}

# Starts a map that outlives what follows, in the background.
begin_map() { # tasks
    session_of "$1"
    say "\$ fiber run -a … map -p 4 -- sleep 1 (of $1 tasks)"
    case $engine in
    # The program is here, its workers are the engine's.
    docker | kubernetes) f "${session[@]:3}" ;;
    ssh) f "${session[@]:1}" ;;
    *) f run -a --name "$name" "${session[@]}" ;;
    esac >"$work/map" 2>&1 &
    map=$!
    sleep 20
}
end_map() {
    local code
    wait "$map"
    code=$?
    say "the map has ended with exit code $code; it said:"
    tail -15 "$work/map" | cut -c1-400 | show
}
pid_of() { cat "$1" 2>/dev/null; }

restart() {
    begin_map 150
    case $engine in
    slurm)
        say "slurmctld is killed, and started after 30 s"
        kill -9 "$(pid_of "$slurm/run/slurmctld.pid")" && sleep 30
        read_it ps
        slurmctld
        ;;
    gridengine)
        say "sge_qmaster is killed, and started after 30 s"
        local pid
        for pid in $(ip netns pids fib-grid-head); do
            [[ $(cat "/proc/$pid/comm") != sge_qmaster ]] || kill -9 "$pid"
        done
        sleep 30
        read_it ps
        read_it logs --tail 3 "$name"
        "$(tests/cluster/gridengine-enter.sh)" head sge_qmaster
        ;;
    docker)
        say "dockerd ends with its containers, and is started after 10 s"
        kill "$(pid_of "$state/dockerd.pid")" && sleep 10
        read_it ps
        tests/cluster/docker-up.sh | show
        ;;
    kubernetes)
        say "the API server is killed, and started after 60 s"
        kill -9 "$(pid_of "$k8s/run/kube-apiserver.pid")" && sleep 60
        read_it ps
        "$k8s/run/kube-apiserver"
        ;;
    ssh)
        say "sshd of b and its sessions are killed, and it is started after 20 s"
        local pid
        for pid in $(ip netns pids fib-ssh-b); do
            case $(tr '\0' ' ' <"/proc/$pid/cmdline") in sshd:* | */b.conf*) kill -9 "$pid" ;; esac
        done
        sleep 10
        read_it ps
        sleep 10
        "$state/ssh/run/b"
        ;;
    esac
    end_map
}

node() {
    local pid pids=()
    begin_map 150
    case $engine in
    slurm)
        say "all of node n2 stands still for 40 s, as behind a cut wire"
        for pid in /proc/[0-9]*; do
            pid=${pid#/proc/}
            { tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q 'slurmd -N n2 ' ||
                tr '\0' '\n' <"/proc/$pid/environ" | grep -qx SLURMD_NODENAME=n2; } 2>/dev/null &&
                pids+=("$pid")
        done
        ((${#pids[@]})) && kill -STOP "${pids[@]}"
        sleep 40
        read_it ps
        read_it top --once "$name"
        ((${#pids[@]})) && kill -CONT "${pids[@]}"
        ;;
    gridengine | ssh)
        local wire=fib-grid-n2
        [[ $engine == gridengine ]] || wire=fib-ssh-b
        say "the wire $wire is cut for 40 s"
        ip link set "$wire" down && sleep 40
        read_it ps
        ip link set "$wire" up
        ;;
    kubernetes)
        say "the kubelet of the only node stands still for 60 s"
        pid=$(pid_of "$k8s/run/kubelet.pid") && kill -STOP "$pid" && sleep 60
        read_it ps
        kill -CONT "$pid"
        ;;
    docker) say "an engine is one node" ;;
    esac
    end_map
}

large() {
    # What no machine has, and what fits later: that is waited for.
    export FIBER_SCHEDULE_TIMEOUT=20s
    local few=(-- "$sleep" {} ::: 1 1 1)
    case $engine in
    slurm)
        read_it run -a --cpu 64 "$fiber" ps
        read_it run -a --gpu 9 "$fiber" ps
        read_it run -a --cpu 1 "$fiber" map --cpu 64 "${few[@]}"
        read_it run -a --cpu 1 "$fiber" map --gpu 1 "${few[@]}"
        read_it run -a --cpu 1 "$fiber" map -p 9 "${few[@]}"
        ;;
    gridengine)
        read_it run -a --pe fiber --slots 400 "$fiber" ps
        read_it run -a --pe fiber --slots 3 "$fiber" ps
        read_it run -a --pe fiber --slots 2 "$fiber" map --cpu 64 "${few[@]}"
        read_it run -a --pe fiber --slots 2 "$fiber" map --gpu 1 "${few[@]}"
        read_it run -a --pe fiber --slots 2 "$fiber" map -p 9 "${few[@]}"
        ;;
    docker | kubernetes)
        read_it run -a --cpu 64 "$fiber" ps
        read_it run -a --gpu 9 "$fiber" ps
        read_it map --cpu 64 "${few[@]}"
        read_it map --gpu 9 "${few[@]}"
        ;;
    ssh)
        read_it map --cpu 64 "${few[@]}"
        read_it map --gpu 9 "${few[@]}"
        read_it map -p 40 "${few[@]}"
        ;;
    esac
}

folder() {
    case $engine in
    slurm)
        read_it run -a "--slurm=--output=/proc/nowhere/%j.out" "$fiber" ps
        read_it run -a "--slurm=--chdir=/no/such/folder" "$fiber" ps
        XDG_STATE_HOME=/proc/nowhere read_it run -a "$fiber" ps
        ;;
    gridengine)
        read_it run --name "$name" --pe fiber --slots 2 "--gridengine=-o /nowhere/x" "$fiber" ps
        sleep 10
        read_it ps
        read_it kill "$name"
        ;;
    docker)
        FIBER_MOUNTS=/no/such/folder:/data read_it map -- "$sleep" {} ::: 0
        read_it run -a -v no-such-volume "$fiber" ps
        ;;
    kubernetes)
        FIBER_MOUNTS=no-such-claim:/data FIBER_SCHEDULE_TIMEOUT=20s read_it map -- "$sleep" {} ::: 0
        read_it run -a -v no-such-claim "$fiber" ps
        ;;
    ssh)
        FIBER_WORKING_DIR=/no/such/folder read_it map -- "$sleep" {} ::: 0
        FIBER_SSH_HOSTS=readonly:2,a:2 read_it map -p 4 -- "$sleep" {} ::: 1 1 1 1
        ;;
    esac
}

case $case in
terminal | restart | node | large | folder) "$case" ;;
*) echo "no such case: $case" >&2 && exit 2 ;;
esac
