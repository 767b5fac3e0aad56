#!/usr/bin/env bash
# Runs the suites on engines, which `make test-cluster` has started: those of the API, and then those
# of the command, which look at all sessions of an engine.
#
#   scripts/test-engines.sh SUITES [ARGUMENT…]
#
# SUITES is a regular expression for names of test binaries. The arguments are those of `cargo nextest
# run`.

set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
suites=$1
shift
code=0

# Removes the namespaces that tests make, also those of an earlier run that was interrupted.
remove_namespaces() {
    [[ $TEST_BACKENDS != *kubernetes* ]] ||
        kubectl delete namespace fiber fiber-test-command --ignore-not-found
}

remove_namespaces
for packages in 'not package(fiber-cli)' 'package(fiber-cli)'; do
    NEXTEST_PROFILE=engines scripts/test.sh --no-tests pass -E "binary(/^($suites)\$/) & $packages" "$@" || code=$?
done
remove_namespaces
exit "$code"
