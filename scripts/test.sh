#!/usr/bin/env bash
# Runs tests of the workspace, with all features: nextest runs them as `.config/nextest.toml` says.
#
#   scripts/test.sh [ARGUMENT…]
#
# The arguments are those of `cargo nextest run`: parts of names, or -E with an expression. Without
# any, the examples in the documentation are tested beside the tests, and no panic has a backtrace.
#
# With TEST_REPORTS, nextest's report is copied into that directory.

set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo=${CARGO:-cargo}
options=(--workspace --all-features)
# nextest writes it below the workspace, wherever cargo builds.
report=target/nextest/${NEXTEST_PROFILE:-default}/junit.xml
code=0

if [[ $# == 0 ]]; then
    # To print those of expected panics, each of many tests would read its debug information.
    unset RUST_BACKTRACE
    # Otherwise both would wait for each other's build.
    "$cargo" test --quiet "${options[@]}" --no-run
    examples=$(mktemp)
    trap 'rm -f "$examples"' EXIT
    # Six minutes beside the tests. A hang is shown, and ends.
    timeout --foreground --kill-after 60 900 scripts/watched-test.sh \
        "$cargo" test --quiet "${options[@]}" --doc >"$examples" 2>&1 &
fi
rm -f "$report"
"$cargo" nextest run "${options[@]}" "$@" || code=$?
if [[ $# == 0 ]]; then
    wait "$!" || code=$?
    printf '\n==> examples in the documentation\n'
    grep -v '^$' "$examples"
fi
[[ -z ${TEST_REPORTS:-} || ! -e $report ]] || cp "$report" "$TEST_REPORTS/$(date +%s%N).xml"
exit "$code"
