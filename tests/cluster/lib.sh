# Paths and functions that the scripts in this folder share. They source it.
# shellcheck shell=bash disable=SC2034 # the scripts use the variables

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# The state of the engines and the cluster, outside of the checkout.
state=${CLUSTER_DIR:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fiber/cluster}
k8s=$state/k8s
slurm=$state/slurm
# The Grid Engine cluster, and its hosts beside `head`.
grid=$state/gridengine
grid_nodes=(n1 n2 n3 n4)
# The registry that containerd-up.sh starts, and the directory of its containerd's sockets, whose
# paths have to be short.
registry=127.0.0.1:15000
containerd=/run/fiber-containerd

fail() { # message
    echo "error: $*" >&2
    exit 1
}

# Fails, after the last lines of a log.
fail_with_log() { # log message
    tail -20 "$1" >&2
    fail "$2; the log is $1"
}

# Waits until the script's function `ready` succeeds.
await_ready() { # seconds log message
    local end=$((SECONDS + $1))
    until ready; do
        ((SECONDS < end)) || fail_with_log "$2" "$3"
        sleep 0.1
    done
}

# Installs Debian's packages of the commands that are missing. Returns apt-get's exit status.
install_missing() { # log command:package…
    local log=$1 need packages=()
    shift
    for need in "$@"; do
        command -v "${need%%:*}" >/dev/null || packages+=("${need##*:}")
    done
    ((${#packages[@]})) || return 0
    echo "installing ${packages[*]} …"
    {
        apt-get -o DPkg::Lock::Timeout=600 -q update
        DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -q \
            --no-install-recommends "${packages[@]}"
    } >"$log" 2>&1
}

# Prints the path of runc-modest if this is a root without CAP_SYS_RESOURCE (number 24), as in some
# virtual machines, who can't do all that containers ask for.
modest_runc() {
    local effective
    effective=$(awk '/^CapEff/ { print $2 }' /proc/self/status)
    if (((0x$effective >> 24 & 1) == 0)); then
        # A copy: the engine, and its records of containers, may outlive this checkout.
        install -m 755 "$here/runc-modest" "$state/runc-modest"
        echo "$state/runc-modest"
    fi
}

# Makes a network of hosts that are network namespaces of this one.
make_network() { # bridge net
    ip link add "$1" type bridge
    ip addr add "$2.1/24" dev "$1"
    ip link set "$1" up
    # Docker drops what is forwarded, also between the ports of a bridge.
    if command -v iptables >/dev/null; then
        iptables -w -I FORWARD -i "$1" -o "$1" -j ACCEPT
    fi
}

# Adds a host to a network. Its namespace and its wire are called BRIDGE-HOST.
add_host() { # bridge host address
    ip netns add "$1-$2"
    ip link add "$1-$2" type veth peer name eth0 netns "$1-$2"
    ip link set "$1-$2" master "$1" up
    ip -n "$1-$2" link set lo up
    ip -n "$1-$2" addr add "$3/24" dev eth0
    ip -n "$1-$2" link set eth0 up
}

# Removes hosts, with all processes in their namespaces.
remove_hosts() { # bridge host…
    local bridge=$1 host pids
    shift
    for host in "$@"; do
        ip netns list 2>/dev/null | grep -q "^$bridge-$host\b" || continue
        for _ in $(seq 50); do
            pids=$(ip netns pids "$bridge-$host")
            [[ -n $pids ]] || break
            # shellcheck disable=SC2086 # one word a process
            kill -9 $pids 2>/dev/null || true
            sleep 0.1
        done
        # The end of a namespace takes its interfaces later.
        ip link del "$bridge-$host" 2>/dev/null || true
        ip netns del "$bridge-$host"
    done
}

remove_network() { # bridge
    while iptables -w -D FORWARD -i "$1" -o "$1" -j ACCEPT 2>/dev/null; do :; done
    ip link del "$1" 2>/dev/null || true
}
