#!/usr/bin/env bash
# Plants defects into a scratch clone, one after the other, runs the check that has to find each alone
# (`.ci/run NAME`), and shows its last 30 lines and whether they name the defect.
#
#   planted.sh [DEFECT…]      all of: hang leak flaky clippy engine
#
# REPOSITORY (/work/main) and COMMIT (its HEAD) say what is cloned. Use nothing else of the machine
# meanwhile: it builds into fiber's cached target directory, as the gate does. Takes 25 to 40 minutes:
# each run builds the workspace anew, and a hang ends after two tries of four minutes. `engine` starts
# Docker, as root, and stops it.

set -uo pipefail

repository=${REPOSITORY:-/work/main}
commit=${COMMIT:-$(git -C "$repository" rev-parse HEAD)}
scratch=$(mktemp -d /var/tmp/fiber-planted-XXXXXX)
clone=$scratch/project
missed=0

git clone -q "$repository" "$clone" && git -C "$clone" checkout -q --detach "$commit" || exit 2

# Adds lines to a file of the clone as it was.
plant() { # file <lines
    git -C "$clone" reset -q --hard && git -C "$clone" clean -qfdx
    cat >>"$clone/$1"
    # The planted lines must not be found by their number.
    (cd "$clone" && scripts/check-size.py --write >/dev/null)
}

# Adds a test to a crate.
plant_test() { # name <body
    plant core/src/lib.rs < <(
        printf '\n#[cfg(test)]\nmod planted {\n    #[test]\n    fn %s() {\n' "$1"
        sed 's/^/        /'
        printf '    }\n}\n'
    )
}

# Runs a check, whose last 30 lines have to match two expressions: the defect's name, and the reason.
find_it() { # defect exit-code name reason check [VARIABLE=…]
    local defect=$1 wanted=$2 name=$3 reason=$4 check=$5 log=$scratch/$1.log code verdict=found
    shift 5
    local began=$SECONDS
    (cd "$clone" && env "$@" .ci/run "$check") >"$log" 2>&1 </dev/null
    code=$?
    tail -n 30 "$log" >"$scratch/end"
    grep -qE -- "$name" "$scratch/end" || verdict="MISSED: no line has $name"
    grep -qE -- "$reason" "$scratch/end" || verdict="MISSED: no line has $reason"
    [[ $code == "$wanted" ]] || verdict="MISSED: exit code $code, not $wanted"
    [[ $verdict == found ]] || missed=$((missed + 1))
    printf '\n======== %s: .ci/run %s, exit code %s, %s s, all of it in %s\n' \
        "$defect" "$check" "$code" $((SECONDS - began)) "$log"
    cat "$scratch/end"
    printf '======== %s: %s\n' "$defect" "$verdict"
}

hang() {
    plant_test hangs <<<'loop {
    std::thread::park();
}'
    find_it hang 1 'failed: .*planted::hangs' 'time|TIMEOUT' test ARGS=planted
    echo "its stacks, further up:"
    grep -n -A6 'the test is at its time limit' "$scratch/hang.log" | head -n 10
}

leak() {
    # It has the output of the test, and ends by itself after five minutes.
    plant_test leaks <<<'std::process::Command::new("sleep").arg("300").spawn().expect("it starts");'
    find_it leak 1 'failed: .*planted::leaks' 'leak' test ARGS=planted
}

flaky() {
    plant_test is_flaky <<<'let mark = concat!(env!("CARGO_MANIFEST_DIR"), "/planted");
if !std::path::Path::new(mark).exists() {
    std::fs::write(mark, "").expect("there is room");
    panic!("planted: it fails at first");
}'
    # One is tolerated, and named.
    find_it flaky 0 'flaky: .*planted::is_flaky' 'planted: it fails at first' test ARGS=planted
    tail -n 1 "${XDG_CACHE_HOME:-$HOME/.cache}/fiber/flaky-tests.txt"
}

clippy() {
    plant core/src/lib.rs <<'RUST'

/// Planted.
#[must_use]
pub fn planted(text: &str) -> bool {
    text.len() == 0
}
RUST
    find_it clippy 1 'FAILED: make lint' 'length comparison to zero|is_empty|len_zero' lint
}

engine() {
    plant tests/docker/input.rs <<'RUST'

#[trial]
fn planted_failure() {
    panic!("planted: it fails on an engine");
}
RUST
    find_it engine 1 'failed: .*planted_failure' 'planted: it fails on an engine' test-cluster \
        ARGS=planted BACKENDS=docker SUITES=docker
}

[[ $# -gt 0 ]] || set -- hang leak flaky clippy engine
for defect; do
    case $defect in
        hang | leak | flaky | clippy | engine) "$defect" ;;
        *) echo "there is no defect $defect" >&2 && exit 2 ;;
    esac
done
rm -rf "$clone"
printf '\n%s of %s missed; logs in %s\n' "$missed" "$#" "$scratch"
exit "$((missed > 0))"
