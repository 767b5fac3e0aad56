#!/usr/bin/env bash
# Runs as root the tests that `make test` skips without root: those that act as other users, or make
# namespaces.
#
#   scripts/test-root.sh [ARGUMENT…]
#
# The arguments are those of `cargo nextest run`.

set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ $(id -u) == 0 ]] ||
    { echo "these tests take root: sudo -E env \"PATH=\$PATH\" make test-root" >&2; exit 2; }
# They say so: `skipped: a test as another user takes root`.
names=$(grep -rhE --include='*.rs' '^ *(async )?fn [a-z_0-9]+\(|skipped: .*\<root\>' \
    actors backends cli core journal src tests transport |
    awk '/skipped: / { print name; next } { sub(/^ *(async )?fn /, ""); sub(/\(.*/, ""); name = $0 }' |
    sort -u | paste -sd '|')
exec scripts/test.sh -E "test(/(^|::)($names)\$/)" "$@"
