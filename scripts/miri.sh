#!/bin/sh
# Runs tests of the unsafe code of values under miri: the codec, arrays and ranges of blobs.
#
#   scripts/miri.sh [ARGUMENT…]
#
# The arguments are those of a test binary. A nightly toolchain with miri has to be installed.

set -eu

cd "$(dirname -- "$0")/.."
if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "skipped: miri, which \`rustup toolchain install nightly --component miri\` installs"
    exit 0
fi
# With the clock and the files of this machine, and few cases: each takes a hundred times as long.
export MIRIFLAGS="-Zmiri-disable-isolation ${MIRIFLAGS:-}"
export PROPTEST_CASES="${PROPTEST_CASES:-8}"
# Miri has no memory that processes share, and no limit of the stack.
exec cargo +nightly miri test -p fiber-values --lib -- codec:: array:: blob::ranges:: \
    --skip shared_memory --skip deep --skip stack "$@"
