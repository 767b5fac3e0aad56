#!/usr/bin/env bash
# Starts three machines for the tests of the backend `ssh`, unless they answer already: sshd in
# network namespaces of their own, called `a`, `b` and `c`, each with a cache of its own. On `a` run
# further ones, each with something wrong: see below. Run it as root: it installs Debian's
# openssh-server. The state, with all keys and the file for `ssh -F`, is in $CLUSTER_DIR/ssh, outside
# of the checkout; ~/.ssh is not touched. ssh-down.sh stops them.
#
# A test cuts the wire of a machine with `ip link set fib-ssh-a down`.

set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
ssh=$state/ssh
net=10.83.7
bridge=fib-ssh
sshd=/usr/sbin/sshd

answer() {
    local machine
    for machine in a b c; do
        timeout 5 ssh -F "$ssh/config" -o BatchMode=yes "$machine" true </dev/null >/dev/null 2>&1 || return 1
    done
}

if [[ -s $ssh/config ]] && command -v ssh >/dev/null && answer; then
    echo "the machines answer: ssh -F $ssh/config a"
    exit 0
fi
[[ $(id -u) == 0 ]] || fail "no machines answer, and only root can start them: run this as root"
mkdir -p "$ssh"
chmod 700 "$ssh"
install_missing "$ssh/install.log" "$sshd:openssh-server" ssh:openssh-client ip:iproute2 ||
    fail_with_log "$ssh/install.log" "openssh-server could not be installed"
"$here/ssh-down.sh" >/dev/null
rm -rf "$ssh/caches"
# sshd separates its privileges in this directory.
mkdir -p /run/sshd "$ssh"/{keys,caches,run,tools/alien,tools/old}
cd "$ssh"

for key in user stranger host other; do
    [[ -s keys/$key ]] || ssh-keygen -q -t ed25519 -N '' -C "fiber-test-$key" -f "keys/$key"
done
cp keys/user.pub keys/authorized
# Programs that a machine with a foreign processor or an old C library would have.
printf '#!/bin/sh\necho aarch64\n' >tools/alien/uname
printf '#!/bin/sh\necho glibc 2.17\n' >tools/old/getconf
chmod +x tools/*/*

make_network "$bridge" "$net"
number=10
for machine in a b c; do
    number=$((number + 1))
    add_host "$bridge" "$machine" "$net.$number"
done

# Prints the directory of a control group for the processes of a machine, of version 1 or 2.
processes_of() { # name
    local root=/sys/fs/cgroup
    [[ -d $root/pids ]] && root=$root/pids
    echo "$root/fib-ssh-$1"
}

# Starts an sshd with a script of its name, so the tests can start it again.
serve() { # name namespace port [option…]
    local name=$1 namespace=$2 port=$3
    shift 3
    mkdir -p "caches/$name"
    {
        printf 'Port %s\nHostKey %s/keys/host\nPidFile none\nUsePAM no\nStrictModes no\n' "$port" "$ssh"
        printf 'PermitRootLogin prohibit-password\nPasswordAuthentication no\n'
        printf 'KbdInteractiveAuthentication no\nAuthorizedKeysFile %s/keys/authorized\n' "$ssh"
        # As many connections at once as a test likes.
        printf 'MaxStartups 1000\nMaxSessions 1000\nUseDNS no\n'
        printf 'SetEnv XDG_CACHE_HOME=%s/caches/%s%s\n' "$ssh" "$name" "${1:+ $1}"
    } >"run/$name.conf"
    cat >"run/$name" <<SCRIPT
#!/bin/sh
if [ -d "$(processes_of "$name")" ]; then echo \$\$ >"$(processes_of "$name")/cgroup.procs"; fi
setsid nohup ip netns exec fib-ssh-$namespace $sshd -D -f $ssh/run/$name.conf -E $ssh/run/$name.log \\
    >>$ssh/run/$name.log 2>&1 </dev/null &
echo \$! >$ssh/run/$name.pid
SCRIPT
    chmod +x "run/$name"
    "run/$name"
}
serve a a 22
serve b b 22
serve c c 22
# One with no room for a program, one of another architecture, one with an old C library.
mkdir -p caches/full
mount -t tmpfs -o size=64k fib-ssh-full caches/full
serve full a 23
# One with a home that can't be written.
mkdir -p caches/readonly
mount -t tmpfs -o ro,size=64k fib-ssh-readonly caches/readonly
serve readonly a 28
serve alien a 24 "PATH=$ssh/tools/alien:/usr/bin:/bin"
serve old a 25 "PATH=$ssh/tools/old:/usr/bin:/bin"
# One that runs out of processes: sshd, a shell and a host with its threads are more.
{ mkdir "$(processes_of crowded)" && echo 10 >"$(processes_of crowded)/pids.max"; } ||
    fail "no control group can limit processes: mount cgroups with the controller \`pids\`"
serve crowded a 27

host_key=$(cut -d' ' -f1,2 keys/host.pub)
{
    for number in 11 12 13; do
        echo "$net.$number $host_key"
    done
    for port in 23 24 25 27 28; do
        echo "[$net.11]:$port $host_key"
    done
    echo "changed $(cut -d' ' -f1,2 keys/other.pub)"
} >known_hosts
{
    entry() { # name address line…
        printf 'Host %s\n    HostName %s\n' "$1" "$2"
        [[ $# == 2 ]] || printf '    %s\n' "${@:3}"
    }
    entry a "$net.11"
    entry b "$net.12"
    entry c "$net.13"
    entry full "$net.11" 'Port 23'
    entry alien "$net.11" 'Port 24'
    entry old "$net.11" 'Port 25'
    entry crowded "$net.11" 'Port 27'
    entry readonly "$net.11" 'Port 28'
    # The bad inputs of a user: a key that the machine does not know, one that changed, one that
    # nobody has confirmed, a machine that does not serve ssh, one that is off, and no machine.
    entry stranger "$net.11" "IdentityFile $ssh/keys/stranger"
    entry changed "$net.11" 'HostKeyAlias changed'
    entry unconfirmed "$net.11" 'HostKeyAlias unconfirmed'
    entry silent "$net.11" 'Port 26'
    entry off "$net.99"
    entry nowhere nowhere.invalid
    # Keys add up.
    printf 'Host * !stranger\n    IdentityFile %s/keys/user\n' "$ssh"
    printf 'Host *\n    User root\n    IdentitiesOnly yes\n    IdentityAgent none\n'
    printf '    UserKnownHostsFile %s/known_hosts\n    GlobalKnownHostsFile /dev/null\n' "$ssh"
} >config
for _ in $(seq 100); do
    if answer; then
        echo "the machines answer: ssh -F $ssh/config a"
        exit 0
    fi
    sleep 0.1
done
fail_with_log run/a.log "the machines did not start"
