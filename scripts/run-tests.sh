#!/usr/bin/env bash
# Builds the tests of the workspace with all features, once, and runs their binaries side by side,
# LANES (3) at a time, since many of them wait most of the time. The output ends with the failures
# and the number of all tests.
#
#   scripts/run-tests.sh [-r] [-t NAME]… [-o PATTERN] [-x PATTERN] [--] [ARGUMENT…]
#
# -r builds with optimizations, -t builds these binaries only. -o and -x choose what runs, by a
# pattern of bash for FOLDER/NAME (`actors/pool/lib`, `fiber/programs`): -o those, -x not those.
# Without these options, the examples in the documentation are tested, too. The arguments are those
# of each test binary: a part of a test's name, `--ignored`.
#
# A binary that runs for TEST_LIMIT seconds (900; 0: no limit; twice as long for the examples) is ended,
# after its threads are printed, and runs once more. Up to three failed tests of a binary run once
# more. One that passes then is flaky, which is a defect: it is shown at the end, and noted in
# `flaky-tests.txt` in fiber's cache directory. Two are borne.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cargo=${CARGO:-cargo}
# These run longest: they start first, and the short ones fill the time beside them.
longest=(fiber/doc fiber/programs cli/top fiber/suites fiber/soak fiber/durable core/values/models)
tab=$'\t'

# Prints the first tests of a binary that are not in its output: those that hang, and a few that had not
# begun.
unfinished() {
    [[ $name != doc ]] || return 0
    "$executable" "${arguments[@]}" --list 2>/dev/null | sed -n 's/: test$//p' | sort >"$1.all"
    sed -n 's/^test \(.*\) \.\.\. .*/\1/p' "$1" | sort | comm -23 "$1.all" - | head -n 8 | paste -sd' '
    rm "$1.all"
}

# Runs the failed tests of a binary once more. Returns whether all of them pass.
are_flaky() {
    local output=$1 test failed
    [[ $name != doc ]] || return 1
    mapfile -t failed < <(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$output" | sed 's/ - should panic$//; s/ *$//')
    ((${#failed[@]} > 0 && ${#failed[@]} <= 3)) || return 1
    for test in "${failed[@]}"; do
        env -C "$directory" timeout --foreground --kill-after 60 "$limit" "$root/scripts/watched-test.sh" \
            "$executable" --exact "$test" >"$SCRATCH/again.$$" 2>&1 || true
        # A name that is not found would pass, too.
        grep -q '^test result: ok. 1 passed' "$SCRATCH/again.$$" && continue
        sed '/^test result:/d' "$SCRATCH/again.$$" >>"$output"
        return 1
    done
    for test in "${failed[@]}"; do
        echo "flaky: $folder/$name $test: $(reason_of "$test" "$output")" >>"$SCRATCH/flaky"
    done
    # They count as passed.
    sed -i -E "s/^test result: FAILED\. ([0-9]+) passed; [0-9]+ failed/test result: ok. \1 passed; 0 failed/" "$output"
    printf 'test result: ok. %d passed; 0 failed; 0 ignored\n' "${#failed[@]}" >>"$output"
}

# Prints why a test failed, on one line.
reason_of() {
    sed -n "/^---- $1 .*----\$/,/^\$/p" "$2" | sed 1d | paste -sd' ' | cut -c1-300
}

# Runs one line of `chosen`, and prints the output as a whole.
run_one() {
    local folder name executable code=0 arguments=() limit=${TEST_LIMIT:-900}
    local TIMEFORMAT="%0R s, CPU %0U + %0S s"
    IFS=$tab read -r folder name executable <<<"$1"
    local output="$SCRATCH/${folder//\//_}_$name" directory=$root/$folder
    [[ $folder == fiber ]] && directory=$root
    mapfile -d '' arguments <"$SCRATCH/arguments"
    set -- "$executable"
    if [[ $name == doc ]]; then
        set -- "$cargo" test --quiet --workspace --all-features --doc --
        limit=$((2 * limit))
    fi
    set -- timeout --foreground --kill-after 60 "$limit" "$root/scripts/watched-test.sh" "$@"
    time=$({ time env -C "$directory" "$@" "${arguments[@]}" >"$output" 2>&1; } 2>&1) || code=$?
    # What `timeout` exits with at the limit.
    if [[ $code == 124 ]]; then
        echo "hung: $folder/$name ran for $limit s, and once more; $(unfinished "$output")" >>"$SCRATCH/hung"
        # What follows counts.
        sed '/^test result:/d' "$output" >"$output.hung"
        code=0
        time=$({ time env -C "$directory" "$@" "${arguments[@]}" >"$output" 2>&1; } 2>&1) || code=$?
    fi
    if [[ $code != 0 ]] && are_flaky "$output"; then
        code=0
    fi
    if [[ $code != 0 ]]; then
        echo "failed: $folder/$name, exit code $code" >>"$SCRATCH/failed"
        mv "$output" "$output.failed"
        output=$output.failed
    fi
    {
        flock 9
        printf '\n     Running %s/%s (%s)\n' "$folder" "$name" "$time"
        cat "$output"
    } 9>"$SCRATCH/lock"
    [[ $code == 0 ]]
}

# Prints the folder, the name and the path of each test binary.
binaries() {
    local folder kind name executable
    local fields='"manifest_path":"\([^"]*\)/Cargo.toml".*"kind":\["\([^"]*\)".*"name":"\([^"]*\)"'
    local test='"profile":{[^}]*"test":true},.*"executable":"\([^"]*\)"'
    sed -n "s|.*$fields.*$test.*|\1$tab\2$tab\3$tab\4|p" "$SCRATCH/messages" |
        while IFS=$tab read -r folder kind name executable; do
            folder=${folder#"$root"}
            folder=${folder#/}
            # Unit tests have the name of their crate.
            [[ $kind == test ]] || name=$kind
            printf '%s\t%s\t%s\n' "${folder:-fiber}" "$name" "$executable"
        done
}

# Prints the lines of what is asked for, the longest first.
chosen() {
    local folder name executable rank index
    {
        [[ $only == "*" && -z $without && ${#build[@]} == 0 ]] && printf 'fiber\tdoc\t-\n'
        binaries
    } | while IFS=$tab read -r folder name executable; do
        # shellcheck disable=SC2053 # They are patterns.
        [[ $folder/$name == $only && $folder/$name != $without ]] || continue
        rank=${#longest[@]}
        for index in "${!longest[@]}"; do
            [[ $folder/$name == "${longest[index]}" ]] && rank=$index
        done
        printf '%s\t%s\t%s\t%s\n' "$rank" "$folder" "$name" "$executable"
    done | sort -s -n -k1,1 | cut -f2-
}

summarize() {
    local output counts='\([0-9]*\) passed; \([0-9]*\) failed; \([0-9]*\) ignored'
    for output in "$SCRATCH"/*.failed; do
        [[ -e $output ]] || continue
        printf '\n==> failed: %s\n' "$(basename "$output" .failed)"
        # The output of each failed test is below this line. A binary that crashes has none.
        sed -n '/^failures:$/,$p' "$output" | grep . || tail -n 40 "$output"
    done
    for output in "$SCRATCH"/*.hung; do
        [[ -e $output ]] || continue
        printf '\n==> hung: %s\n' "$(basename "$output" .hung)"
        # Without the tests that had ended.
        grep -v ' \.\.\. ok$' "$output" | grep . | head -n 300
    done
    echo
    cat "$SCRATCH/hung" "$SCRATCH/flaky" "$SCRATCH/failed" 2>/dev/null || true
    sed -n "s/^test result:.* $counts.*/\1 \2 \3/p" "$SCRATCH"/*_* | awk -v seconds="$SECONDS" '
        { passed += $1; failed += $2; ignored += $3 }
        END { printf "tests: %d passed, %d failed, %d ignored, in %d s\n", passed, failed, ignored, seconds }'
}

if [[ ${1:-} == one ]]; then
    run_one "$2"
    exit
fi

only="*" without="" build=()
while getopts rt:o:x: option; do
    case $option in
    r) build+=(--release) ;;
    t) build+=(--test "$OPTARG") ;;
    o) only=$OPTARG ;;
    x) without=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))

SCRATCH=$(mktemp -d)
export SCRATCH
trap 'rm -rf "$SCRATCH"' EXIT
cd "$root"
: >"$SCRATCH/arguments"
[[ $# == 0 ]] || printf '%s\0' "$@" >"$SCRATCH/arguments"
"$cargo" test --workspace --all-features "${build[@]}" --no-run \
    --message-format=json-render-diagnostics >"$SCRATCH/messages"
# Unit tests of macros are linked with the toolchain's standard library.
LD_LIBRARY_PATH="$(rustc --print target-libdir)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LD_LIBRARY_PATH
code=0
chosen | xargs -r -d '\n' -n1 -P"${LANES:-3}" "${BASH_SOURCE[0]}" one || code=$?
if [[ -e $SCRATCH/flaky ]]; then
    notes=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/fiber/flaky-tests.txt
    mkdir -p "$(dirname "$notes")"
    sed "s/^flaky:/$(date '+%F %T')/" "$SCRATCH/flaky" >>"$notes"
    (($(wc -l <"$SCRATCH/flaky") <= 2)) || { echo "failed: more than two flaky tests" >>"$SCRATCH/failed"; code=1; }
fi
summarize
exit "$code"
