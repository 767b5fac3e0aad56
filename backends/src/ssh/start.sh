# Prepares the start of the program on a machine: between `begin.sh` and `keep.sh` of the folder
# `shell`, which say how such a script is written.

# Kills all of the group.
end() { [ "$group" != "$$" ] || kill -9 0; kill -9 "$pid" "$$"; };

in_use() { touch -c "$folder"; };

# Compares the machines before anything is written.
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
user=$(id -u);
# Several users may share the directory.
cache=$cache/fiber-$user/builds;
folder=$cache/$build;
file=$folder/$program;
problem=$(mkdir -p "$folder" 2>&1) || refuse cache "$problem";
# Without links that others could change.
unset CDPATH;
cache=$(cd -P "$cache" && pwd -P);
folder=$cache/$build;
file=$folder/$program;

# A primary group with the number of its user has no other members, as `useradd` makes it.
own=0;
[ "$(id -g)" != "$user" ] || own=$user;
# Prints which of these files another user owns or can write. Only owners replace files in a
# directory with the sticky bit.
exposed() {
    find "$@" -prune ! \( \( -user "$user" -o -user 0 \) \(
        -type d -perm -1000 -o
        ! -perm -002 \( ! -perm -020 -o -group 0 -o -group "$own" \)
    \) \);
};
# Who can write a directory above the program can replace it.
check() {
    place=$folder;
    set -- "$place";
    while [ -n "${place%/*}" ]; do
        place=${place%/*};
        set -- "$@" "$place";
    done;
    [ ! -e "$file" ] || set -- "$@" "$file";
    bad=$(exposed "$@" / 2>&1);
    [ -z "$bad" ] || refuse exposed "$bad";
};
check;

# From now on, it is in use.
touch -c "$folder" 2>/dev/null;
if [ ! -x "$file" ] || [ -z "$(find "$file" -size "${size}c" 2>/dev/null)" ]; then
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
    command -v sha256sum >/dev/null || refuse tool sha256sum;
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
    sum_here=$(sha256sum <"$new");
    if [ "$sum_here" != "$sum" ]; then
        rm -f "$new";
        refuse copy "${problem:-$sum_here instead of $sum}";
    fi;
    problem=$( { chmod 700 "$new" && mv -f "$new" "$file"; } 2>&1) || refuse cache "$problem";
fi;
