# Starts the program on a machine. This file is sent over standard input as one line, after the
# values that it uses, so each of its lines ends with what separates commands.
#
# It answers on standard output, in lines after `fiber-ssh`: `refused` and why, or `send` if it needs
# the program first, then `run`. It says `run` on standard error, too: what comes after that is the
# program's.
#
# It has to work in any POSIX shell: dash, bash, BusyBox.
mask=$(umask);
umask 077;
exec 3<&0 </dev/null;
say() { printf "fiber-ssh %s\n" "$*"; };
refuse() { say refused "$(printf "%s " "$@" | tr "\n" " ")"; exit 0; };

# sshd makes this shell the leader of a process group, which ends with it.
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
# Kills all of the group.
end() { [ "$group" != "$$" ] || kill -9 0; kill -9 "$pid" "$$"; };

# What is another machine, before anything is written.
here=$(uname -sm);
libc=$(getconf GNU_LIBC_VERSION 2>/dev/null);
for musl in /lib/ld-musl-*; do
    [ -n "$libc" ] || [ ! -e "$musl" ] || libc=musl;
done;
other() { refuse machine "$here with ${libc:-an unknown C library}"; };
[ -z "$machine" ] || [ "$here" = "$machine" ] || other;
[ -z "$loader" ] || [ -e "$loader" ] || other;
case $glibc/$libc in
    [0-9]*/glibc*)
        version=${libc#glibc };
        minor=${version#*.};
        [ "${version%%.*}" -gt "${glibc%%.*}" ] ||
            { [ "${version%%.*}" = "${glibc%%.*}" ] && [ "${minor%%.*}" -ge "${glibc#*.}" ]; } ||
            other;;
esac;

case $cache in
    "") cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}};;
    "~"/*) cache=$HOME/${cache#*/};;
esac;
[ -n "$cache" ] || refuse home;
cache=$cache/fiber/builds;
folder=$cache/$build;
file=$folder/$program;

# From now on, it is in use.
touch -c "$folder" 2>/dev/null;
if [ ! -x "$file" ] || [ -z "$(find "$file" -size "${size}c" 2>/dev/null)" ]; then
    problem=$(mkdir -p "$folder" 2>&1) || refuse cache "$problem";
    need=$((size / 1024 + 1));
    measure() {
        used=$(du -sk "$cache" 2>/dev/null | cut -f 1);
        free=$(df -Pk "$folder" | { read -r line; read -r disk blocks taken free rest; echo "$free"; });
    };
    crowded() { measure; [ $((used + need)) -gt "$limit" ] || [ "$free" -lt "$need" ]; };
    for old in $(ls -1tr "$cache"); do
        crowded || break;
        # Only builds, and none that was used lately or runs.
        case ${old#blake3-} in *[!0-9a-f]*) continue;; esac;
        [ "$old" != "$build" ] || continue;
        [ -z "$(find "$cache/$old" -prune -mmin -30 2>/dev/null)" ] || continue;
        ls -l /proc/[0-9]*/exe 2>/dev/null | grep -qF "/builds/$old/" && continue;
        rm -rf "$cache/$old";
    done;
    measure;
    [ "$free" -ge "$need" ] || refuse room "$free" "$need" "$cache";
    # Copies that others never finished.
    find "$folder" -name ".new.*" -mmin +60 -exec rm -f {} + 2>/dev/null;
    new=$folder/.new.$(uname -n).$$;
    say send;
    # The wire may be cut without a word.
    {
        before=;
        while sleep 20; do
            now=$(ls -ln "$new");
            [ "$now" != "$before" ] || { rm -f "$new"; end; };
            before=$now;
        done;
    } >/dev/null 2>&1 &
    watch=$!;
    read -r sum <&3;
    problem=$(head -c "$size" <&3 2>&1 >"$new");
    # With its `sleep`.
    kill -9 "$watch";
    clear;
    sum_here=$(cksum <"$new");
    if [ "$sum_here" != "$sum" ]; then
        rm -f "$new";
        refuse copy "${problem:-$sum_here instead of $sum}";
    fi;
    problem=$( { chmod 700 "$new" && mv -f "$new" "$file"; } 2>&1) || refuse cache "$problem";
fi;
if [ -n "$directory" ]; then
    cd "$directory" || refuse directory;
fi;
umask "$mask";

say run;
echo "fiber-ssh run" >&2;
printf "%s" "$secrets" | "$file" "$@" 3<&- &
pid=$!;
secrets=;
# The shell's own words about the end of the program are not the program's.
exec 4>&2 >/dev/null 2>&1;
{
    while read -r line; do
        case $line in
            terminate) kill -15 "$pid";;
            *) touch -c "$folder";;
        esac;
    done;
    end;
} <&3 4>&- &
watch=$!;
exec 3<&-;
wait "$pid";
code=$?;
kill -9 "$watch";
# What the program has left behind.
clear;
# To ssh, this code is its own.
[ "$code" != 255 ] || echo "the program exited with code 255" >&4;
exit "$code"
