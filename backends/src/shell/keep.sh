# Starts the program "$file" with the arguments "$@", and watches it to its end. Before it come
# `end`, which ends all when standard input does, and `in_use`, for any other word from there.
if [ -n "$directory" ]; then
    cd "$directory" || refuse directory "$directory";
fi;
umask "$mask";

say run;
echo "fiber-shell run" >&2;
set -- "$file" "$@";
# By `echo`, which each shell has built in: the arguments of a program are visible to all users.
{ [ -z "$secrets" ] || echo "$secrets"; } | { eval "$exports"; exec "$@"; } 3<&- &
pid=$!;
secrets=;
exports=;
# The shell's own words about the end of the program are not the program's.
exec 4>&2 >/dev/null 2>&1;
{
    while read -r line; do
        case $line in
            terminate) kill -15 "$pid";;
            *) in_use;;
        esac;
    done;
    end;
} <&3 4>&- &
watch=$!;
exec 3<&-;
wait "$pid";
code=$?;
kill -9 "$watch";
# Kills what the program has left behind.
clear;
# To ssh, this code is its own.
[ "$code" != 255 ] || echo "the program exited with code 255" >&4;
exit "$code"
