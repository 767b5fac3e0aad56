#!/bin/sh
# Tests fiber with default features, which a build of the whole workspace does not show:
#   - a program takes few crates of others, and no cmake;
#   - a backend or a link that the program lacks is an error that names the feature;
#   - a build that lacks cmake is an error that names fiber, the feature and the remedy;
#   - a release build of a program is small without its debug sections;
#   - a program with a setuid bit takes no options from its caller, which takes root.
#
# BACKENDS are the names of all backends that a feature adds.

set -eu

cd "$(dirname -- "$0")/.."
# Beside those of fiber itself.
most_crates=75
most_bytes=10600000
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    echo "test-features: $*" >&2
    exit 1
}

# `expect TEXT COMMAND…`: the command fails, and prints the text.
expect() {
    text=$1
    shift
    if "$@" >"$scratch/output" 2>&1; then
        fail "this must fail: $*"
    fi
    grep -qF -- "$text" "$scratch/output" || {
        cat "$scratch/output" >&2
        fail "this must print \"$text\": $*"
    }
}

crates=$(cargo tree --locked -p fiber -e normal,build --prefix none | sed 's/ (\*)$//' | sort -u | grep -cv '^fiber')
[ "$crates" -le "$most_crates" ] || fail "fiber with default features takes $crates crates of others: $most_crates at most"
echo "crates of others with default features: $crates"

CMAKE=/does/not/exist cargo build --quiet --release --locked -p fiber-examples --example pi_estimation
pi=${CARGO_TARGET_DIR:-target}/release/examples/pi_estimation
for backend in $BACKENDS; do
    expect "cargo add fiber --features $backend" env FIBER_BACKEND="$backend" "$pi" --samples 10
done
expect "cargo add fiber --features nng" env FIBER_LINK=nng "$pi" --samples 10
expect "cargo add fiber --features metrics" env FIBER_METRICS=127.0.0.1:0 "$pi" --samples 10
echo "a missing backend, link or part names its feature"

# In a directory of its own: a build script that failed runs again in the next build.
expect "fiber's feature \`nng\`, which \`docker\` and \`kubernetes\` include, builds the library NNG with cmake" \
    env CMAKE=/does/not/exist CARGO_TARGET_DIR="$scratch/target" cargo build --quiet --locked -p fiber --features nng
echo "a missing cmake names fiber, the feature and the remedy"

strip --strip-debug -o "$scratch/pi" "$pi"
bytes=$(wc -c <"$scratch/pi")
[ "$bytes" -le "$most_bytes" ] || fail "pi without debug sections has $bytes bytes: $most_bytes at most"
echo "bytes of pi without debug sections: $bytes"

# In a file system that knows the bit.
with_setuid() {
    cp "$1" "$scratch/bits" && chmod 4755 "$scratch/bits"
}
as_nobody() {
    setpriv --reuid 65534 --regid 65534 --clear-groups env "$@"
}
chmod 755 "$scratch"
if [ "$(id -u)" = 0 ] && with_setuid "$(command -v id)" && [ "$(as_nobody "$scratch/bits" -u)" = 0 ]; then
    with_setuid "$scratch/pi"
    expect "its caller, who has fewer rights" as_nobody "$scratch/bits" --samples 10
    expect "its caller, who has fewer rights" as_nobody FIBER_SLURM_LAUNCHER=$$ FIBER_PARENT=x FIBER_KEY=x "$scratch/bits"
    echo "a program with a setuid bit refuses its caller's options"
else
    echo "skipped: a program with a setuid bit needs root and a file system that knows the bit"
fi
