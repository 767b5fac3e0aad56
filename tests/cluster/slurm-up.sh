#!/usr/bin/env bash
# Starts a Slurm cluster for the tests, unless it answers already: munged, slurmctld, and four nodes,
# each a slurmd of this host with make-believe GPUs. Run it as root: it installs missing packages of
# Debian and starts the daemons itself, without systemd and a database. Jobs of the partition `urgent`
# preempt those of `main`, which are queued again; `staff` is for an account that nobody has; jobs of
# `brief` may take a minute. Where cgroups of version 1 are mounted, they limit the steps' cores and
# memory. The state is in $CLUSTER_DIR/slurm, outside of the checkout; slurm-conf.sh prints the path
# of the configuration. slurm-down.sh stops the cluster.

set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
nodes=4
cores=2
memory=2000
gpus=2
conf=$slurm/slurm.conf
host=$(hostname -s)
export SLURM_CONF=$conf

ready() {
    [[ $(timeout 5 sinfo -h -N -p main -o '%T' 2>/dev/null | grep -cE '^(idle|mixed|allocated)$') == "$nodes" ]]
}

# Whether cgroups of version 1 with all that Slurm uses can be had.
cgroups() {
    local controller
    for controller in cpuset memory freezer cpuacct; do
        mkdir "/sys/fs/cgroup/$controller/fiber-probe" 2>/dev/null || return 1
        rmdir "/sys/fs/cgroup/$controller/fiber-probe"
    done
}

configuration() {
    cat <<CONFIG
ClusterName=fiber
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=17817
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/spool/%n
SlurmctldPidFile=$slurm/run/slurmctld.pid
SlurmdPidFile=$slurm/run/slurmd-%n.pid
SlurmctldLogFile=$slurm/log/slurmctld.log
SlurmdLogFile=$slurm/log/slurmd-%n.log
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=$((memory / cores))
SchedulerParameters=bf_interval=1,sched_min_interval=0,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=2
MessageTimeout=10
SlurmctldTimeout=10
SlurmdTimeout=60
TCPTimeout=2
MailProg=/bin/true
GresTypes=gpu
CONFIG
    if cgroups; then
        echo ProctrackType=proctrack/cgroup
        echo TaskPlugin=task/affinity,task/cgroup
    else
        echo ProctrackType=proctrack/linuxproc
        echo TaskPlugin=task/none
    fi
    local node
    for node in $(seq "$nodes"); do
        echo "NodeName=n$node NodeHostname=$host NodeAddr=127.0.0.1 Port=$((17900 + node))" \
            "CPUs=$cores RealMemory=$memory Gres=gpu:$gpus State=UNKNOWN"
    done
    local all="Nodes=n[1-$nodes] State=UP"
    echo "PartitionName=main $all Default=YES PriorityTier=1"
    echo "PartitionName=urgent $all PriorityTier=10"
    echo "PartitionName=staff $all AllowAccounts=staff"
    echo "PartitionName=brief $all MaxTime=1"
}

if command -v sinfo >/dev/null && [[ -s $conf ]] && ready; then
    echo "a Slurm cluster answers: export SLURM_CONF=$conf"
    exit 0
fi
[[ $(id -u) == 0 ]] || fail "no Slurm cluster answers, and only root can start one: run this as root"
mkdir -p "$slurm"/{state,log,run,dev}
install_missing "$slurm/log/install.log" slurmctld:slurmctld slurmd:slurmd srun:slurm-client munged:munge ||
    fail_with_log "$slurm/log/install.log" "the packages could not be installed"
"$here/slurm-down.sh" >/dev/null

# Nothing makes the directory of its socket without systemd.
install -d -o munge -g munge -m 755 /run/munge
if ! munge -n 2>/dev/null | unmunge >/dev/null 2>&1; then
    su -s /bin/sh munge -c 'munged --force' >"$slurm/log/munged.log" 2>&1 ||
        fail_with_log "$slurm/log/munged.log" "munged did not start"
    cp /run/munge/munged.pid "$slurm/run/munged.pid"
fi

# Jobs and nodes' states of an earlier run are forgotten.
rm -rf "$slurm/state" "$slurm/spool"
mkdir -p "$slurm/state" "$slurm/spool"
for gpu in $(seq 0 $((gpus - 1))); do
    [[ -c $slurm/dev/gpu$gpu ]] || mknod "$slurm/dev/gpu$gpu" c 1 3
done
configuration >"$conf"
printf 'AutoDetect=off\nName=gpu File=%s/dev/gpu[0-%s]\n' "$slurm" "$((gpus - 1))" >"$slurm/gres.conf"
if cgroups; then
    printf '%s\n' CgroupPlugin=cgroup/v1 CgroupMountpoint=/sys/fs/cgroup CgroupAutomount=no \
        ConstrainCores=yes ConstrainRAMSpace=yes ConstrainSwapSpace=no >"$slurm/cgroup.conf"
else
    echo CgroupAutomount=no >"$slurm/cgroup.conf"
fi

slurmctld -c
for node in $(seq "$nodes"); do
    slurmd -N "n$node"
done
await_ready 30 "$slurm/log/slurmctld.log" "the Slurm cluster did not start"
echo "a Slurm cluster answers: export SLURM_CONF=$conf"
