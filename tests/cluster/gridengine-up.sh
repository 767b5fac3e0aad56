#!/usr/bin/env bash
# Starts a Grid Engine cluster for the tests, unless it answers already: sge_qmaster on the host
# `head` and sge_execd on `n1` to `n4`, which are network namespaces of this host with names of
# their own. Run it as root: it installs Debian's packages and starts the daemons itself, without
# systemd.
# The parallel environment `fiber` grants two slots on each host, and so does `first`, where the
# job's script takes one of them. `wide` grants all of a host, and `loose` one, where Grid Engine
# starts no tasks (no `control_slaves`). `brief` has a queue of its own, whose jobs may take 20 s.
# The state is in
# $CLUSTER_DIR/gridengine, outside of the checkout. gridengine-enter.sh prints the path of a script
# that runs a command on a host. gridengine-down.sh stops the cluster.
#
# A test cuts the wire of a host with `ip link set fib-grid-n1 down`.

set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
net=10.83.8
bridge=fib-grid
slots=16
root=$grid/root
cell=$root/default

ready() {
    [[ -x $grid/enter && -e /run/netns/fib-grid-head ]] || return 1
    # Queues that can't run jobs have letters in the last column.
    local states
    states=$(timeout 5 "$grid/enter" head qstat -f -q main.q 2>/dev/null) || return 1
    [[ $(awk '/^main.q@/ && NF == 5' <<<"$states" | wc -l) == "${#grid_nodes[@]}" ]]
}

if ready; then
    echo "a Grid Engine cluster answers: $grid/enter head qstat -f"
    exit 0
fi
[[ $(id -u) == 0 ]] ||
    fail "no Grid Engine cluster answers, and only root can start one: run this as root"
mkdir -p "$grid"
install_missing "$grid/install.log" sge_qmaster:gridengine-master sge_execd:gridengine-exec \
    qsub:gridengine-client ip:iproute2 ||
    fail_with_log "$grid/install.log" "the packages could not be installed"
# Jobs and hosts' states of an earlier run are forgotten.
"$here/gridengine-down.sh" >/dev/null

mkdir -p "$root"/{bin,lib,utilbin} "$cell/common" "$grid"/{log,spool/qmaster,spool/execd}
ln -s /usr/share/gridengine/util "$root/util"
architecture=$(SGE_ROOT=$root /usr/share/gridengine/util/arch)
for directory in bin lib utilbin; do
    ln -s /usr/lib/gridengine "$root/$directory/$architecture"
done

make_network "$bridge" "$net"
echo '127.0.0.1 localhost' >"$grid/hosts"
number=10
for host in head "${grid_nodes[@]}"; do
    number=$((number + 1))
    add_host "$bridge" "$host" "$net.$number"
    echo "$net.$number $host" >>"$grid/hosts"
done
echo 'hosts: files' >"$grid/nsswitch.conf"
cat >"$grid/enter" <<SCRIPT
#!/bin/sh
# Runs a command on a host of the cluster: enter HOST COMMAND…
host=\$1
shift
export SGE_ROOT=$root SGE_CELL=default SGE_QMASTER_PORT=17844 SGE_EXECD_PORT=17845
exec nsenter --net="/run/netns/fib-grid-\$host" unshare --uts --mount sh -c '
    hostname "\$0" && mount --bind $grid/hosts /etc/hosts &&
        mount --bind $grid/nsswitch.conf /etc/nsswitch.conf && exec "\$@"' "\$host" "\$@"
SCRIPT

cat >"$cell/common/bootstrap" <<CONFIG
admin_user none
default_domain none
ignore_fqdn true
spooling_method classic
spooling_lib libspoolc
spooling_params $cell/common;$grid/spool/qmaster
binary_path /usr/sbin
qmaster_spool_dir $grid/spool/qmaster
security_mode none
listener_threads 1
worker_threads 1
scheduler_threads 1
CONFIG
echo head >"$cell/common/act_qmaster"

# Changes settings in a file as the lines of standard input say.
cat >"$grid/change" <<'SCRIPT'
#!/bin/sh
awk 'NR == FNR { set[$1] = $0; next } { print $1 in set ? set[$1] : $0 }' - "$1" >"$1.new" &&
    cat "$1.new" >"$1" && rm "$1.new"
SCRIPT
# As the editor of qconf, which takes a file for unchanged that has its old time.
cat >"$grid/editor" <<SCRIPT
#!/bin/sh
$grid/change "\$1" <$grid/settings && touch -d '+2 seconds' "\$1"
SCRIPT
chmod +x "$grid/enter" "$grid/change" "$grid/editor"
setup() { # command…
    "$grid/enter" head "$@" >>"$grid/log/setup.log" 2>&1 ||
        fail_with_log "$grid/log/setup.log" "the cluster could not be set up"
}
# Adds or changes something of Grid Engine as the lines of standard input say.
configure() { # option…
    cat >"$grid/settings"
    EDITOR=$grid/editor setup qconf "$@"
}

cp /usr/share/gridengine/default-configuration "$grid/configuration"
"$grid/change" "$grid/configuration" <<CONFIG
execd_spool_dir $grid/spool/execd
mailer /bin/true
min_uid 0
min_gid 0
load_report_time 00:00:01
max_unheard 00:00:20
administrator_mail none
gid_range 40000-40200
CONFIG
library=/usr/lib/gridengine
setup "$library/spoolinit" classic libspoolc "$cell/common;$grid/spool/qmaster" init
setup "$library/spooldefaults" configuration "$grid/configuration"
setup "$library/spooldefaults" complexes /usr/share/gridengine/util/resources/centry
setup "$library/spooldefaults" usersets /usr/share/gridengine/util/resources/usersets
setup "$library/spooldefaults" managers root

setup sge_qmaster
# The daemon's parent ends before the daemon listens.
end=$((SECONDS + 60))
until timeout 5 "$grid/enter" head qconf -sm >>"$grid/log/setup.log" 2>&1; do
    ((SECONDS < end)) || fail_with_log "$grid/log/setup.log" "sge_qmaster did not start"
    sleep 0.1
done
nodes=$(IFS=,; echo "${grid_nodes[*]}")
setup qconf -ah "$nodes"
setup qconf -as "head,$nodes"
# By these groups execd finds the processes of a job, and kills them at its end. All hosts are this
# one, so each has a range of its own.
mkdir -p "$grid/local"
gid=40000
for host in "${grid_nodes[@]}"; do
    echo "gid_range $gid-$((gid + 49))" >"$grid/local/$host"
    setup qconf -Aconf "$grid/local/$host"
    gid=$((gid + 50))
done
configure -msconf <<CONFIG
schedule_interval 0:0:1
flush_submit_sec 1
flush_finish_sec 1
job_load_adjustments NONE
CONFIG
configure -ap fiber <<CONFIG
slots 999
allocation_rule 2
control_slaves TRUE
job_is_first_task FALSE
CONFIG
configure -ap brief <<CONFIG
slots 999
allocation_rule 2
control_slaves TRUE
job_is_first_task FALSE
CONFIG
configure -ap wide <<CONFIG
slots 999
allocation_rule $slots
control_slaves TRUE
job_is_first_task FALSE
CONFIG
configure -ap first <<CONFIG
slots 999
allocation_rule 2
control_slaves TRUE
job_is_first_task TRUE
CONFIG
configure -ap loose <<CONFIG
slots 999
allocation_rule 1
CONFIG
for host in "${grid_nodes[@]}"; do
    "$grid/enter" "$host" sge_execd >>"$grid/log/setup.log" 2>&1
done
# Hosts with load stay in use: all of them have that of this one.
configure -aq main.q <<CONFIG
hostlist ${grid_nodes[*]}
slots $slots
pe_list fiber first wide loose
load_thresholds NONE
shell_start_mode unix_behavior
CONFIG
configure -aq brief.q <<CONFIG
hostlist ${grid_nodes[*]}
qtype NONE
slots $slots
pe_list brief
load_thresholds NONE
shell_start_mode unix_behavior
h_rt 00:00:20
CONFIG
await_ready 60 "$grid/spool/qmaster/messages" "the Grid Engine cluster did not start"
echo "a Grid Engine cluster answers: $grid/enter head qstat -f"
