#!/bin/sh
# Runs each fuzz target of fuzz/ for a number of seconds: scripts/fuzz.sh [SECONDS]
#
# The nightly toolchain adds the address sanitizer. Without it the targets run on the toolchain at
# hand: fiber's decoders are safe Rust, so what counts is a panic or memory without bound, which
# show either way.

set -eu

cd "$(dirname -- "$0")/.."
seconds=${1:-60}

if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "fuzz: cargo-fuzz is missing: installing it with cargo" >&2
    cargo install --quiet --locked cargo-fuzz
fi

if cargo +nightly --version >/dev/null 2>&1; then
    toolchain=+nightly
    sanitizer=address
else
    toolchain=
    sanitizer=none
    echo "fuzz: no nightly toolchain (rustup toolchain install nightly): running without the address sanitizer" >&2
fi

# shellcheck disable=SC2086 # an empty toolchain must vanish
targets=$(cargo $toolchain fuzz list)
for target in $targets; do
    echo "fuzz: $target for $seconds s" >&2
    # shellcheck disable=SC2086
    cargo $toolchain fuzz run --sanitizer "$sanitizer" "$target" -- -max_total_time="$seconds" -rss_limit_mb=2048
done
