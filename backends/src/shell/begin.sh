# Begins what starts a program on a machine. The scripts of this crate are sent over standard input
# as one line, after the values that they use, so each of their lines ends with what separates
# commands. They have to work in any POSIX shell: dash, bash, BusyBox.
#
# They answer on standard output, in lines after `fiber-shell`: `refused` and why, or `send` if they
# need the program first, then `run`. They say `run` on standard error, too: what comes after that
# is the program's.
mask=$(umask);
umask 077;
exec 3<&0 </dev/null;
say() { printf "fiber-shell %s\n" "$*"; };
refuse() { say refused "$(printf "%s " "$@" | tr "\n" " ")"; exit 0; };

# The daemon makes this shell the leader of a process group, which ends with it.
state_and_group() { state=$1; its_group=$3; };
read -r line </proc/$$/stat;
state_and_group ${line##*) };
group=$its_group;
# Kills all others of the group.
clear() {
    killed=1;
    while [ "$group" = "$$" ] && [ "$killed" = 1 ]; do
        killed=;
        for process in /proc/[0-9]*; do
            { read -r line <"$process/stat"; } 2>/dev/null || continue;
            state_and_group ${line##*) };
            [ "$its_group" = "$$" ] && [ "$state" != Z ] && [ "$process" != "/proc/$$" ] || continue;
            kill -9 "${process#/proc/}" && killed=1;
        done;
    done;
};
