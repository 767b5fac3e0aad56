#!/usr/bin/env bash
# Runs one test for nextest (`.config/nextest.toml`). When nextest ends the test at its time limit,
# prints what the test and its processes are doing before it kills them.

set -uo pipefail

# Prints the ids of a process and its descendants.
family() {
    local child
    echo "$1"
    for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
        family "$child"
    done
}

# Prints each thread of a process: its name, state, and the kernel's function in which it waits.
threads() {
    local task
    for task in /proc/"$1"/task/*; do
        printf '  %-16s %s %s\n' "$(cat "$task/comm")" \
            "$(sed 's/.*) \(.\) .*/\1/' "$task/stat")" "$(cat "$task/wchan")"
    done 2>/dev/null
}

describe() {
    local pid fiber
    fiber=$(dirname "$1")/../fiber
    for pid in $(family "$test"); do
        printf '\n==> process %s: %s\n' "$pid" "$(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c1-200)"
        # A process without fiber's runtime has no stacks to show.
        timeout 3 "$fiber" stack "$pid" 2>/dev/null || threads "$pid"
    done
}

end() {
    echo "==> the test is at its time limit; its processes, before they are killed:"
    timeout 15 bash -c "$(declare -f family threads describe); test=$test describe $1"
    # shellcheck disable=SC2046 # one argument a process
    kill -KILL $(family "$test") 2>/dev/null
    wait "$test"
    exit 1
}

# A process group of its own: nextest signals the group of this script.
set -m
"$@" &
test=$!
set +m
trap 'end "$1"' TERM
trap 'kill -INT -- -$test' INT
trap 'kill -HUP -- -$test' HUP
trap 'kill -QUIT -- -$test' QUIT
while true; do
    wait "$test"
    code=$?
    kill -0 "$test" 2>/dev/null || break
done
# Ends by the signal that ended the test.
((code <= 128)) || { trap - INT HUP QUIT TERM; ulimit -c 0; kill -"$((code - 128))" $$; }
exit "$code"
