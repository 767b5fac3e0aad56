# Paths and functions that the scripts in this folder share. They source it.
# shellcheck shell=bash disable=SC2034 # the scripts use the variables

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# The state of the engines and the cluster, outside of the checkout.
state=${CLUSTER_DIR:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fiber/cluster}
k8s=$state/k8s
slurm=$state/slurm
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
