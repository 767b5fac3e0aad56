#!/usr/bin/env bash
# Runs the tests that `make test` has built once more, as a user without rights. Root alone can do
# that.
#
#   scripts/test-as-user.sh [ARGUMENT…]
#
# The arguments are those of `cargo nextest run`. The user finds the checkout, what was built and
# the toolchain at the same paths as root, in a mount namespace of its own, also where they are in a
# home directory that is closed to others. It can write in its own home directory only.

set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
# Debian's user for what has no owner.
user=65534
# Of the checkout.
store=target/nextest

# Runs the tests in a namespace that this may change.
inside() {
    local scratch=$1 toolchain=$2 nextest=$3 index code=0
    local target=${CARGO_TARGET_DIR:-$root/target}
    shift 3
    local kept=("$root" "$target" "$toolchain" "$(dirname "$nextest")")
    for index in "${!kept[@]}"; do
        mkdir -p "$scratch/kept/$index"
        mount --bind "${kept[index]}" "$scratch/kept/$index"
    done
    mount -t tmpfs -o mode=755 tmpfs "$HOME"
    for index in "${!kept[@]}"; do
        mkdir -p "${kept[index]}"
        mount --bind "$scratch/kept/$index" "${kept[index]}"
    done
    mount -t tmpfs -o "uid=$user,gid=$user" tmpfs "$root/$store"
    cd "$root"
    env -i HOME="$scratch/home" PATH="$toolchain/bin:/usr/local/bin:/usr/bin:/bin" LANG=C.UTF-8 TERM=xterm \
        setpriv --reuid "$user" --regid "$user" --clear-groups --inh-caps=-all --bounding-set=-all \
        "$nextest" nextest run --workspace-remap "$root" --binaries-metadata "$scratch/binaries.json" \
        --cargo-metadata "$scratch/metadata.json" "$@" || code=$?
    cp "$store/default/junit.xml" "$scratch/report.xml" || true
    return "$code"
}

if [[ ${1:-} == --inside ]]; then
    shift
    inside "$@"
    exit
fi
[[ $(id -u) == 0 ]] || { echo "only root can run tests as another user; for you, there is \`make test\`" >&2; exit 2; }
scratch=$(mktemp -d /var/tmp/fiber-user-XXXXXX)
trap 'rm -rf --one-file-system "$scratch"' EXIT
chmod 755 "$scratch"
mkdir -p "$scratch/home" "$store"
chown "$user:$user" "$scratch/home"
options=(--workspace --all-features)
cargo nextest list "${options[@]}" --list-type binaries-only --message-format json >"$scratch/binaries.json"
cargo metadata --format-version 1 --all-features >"$scratch/metadata.json"
code=0
unshare --mount --propagation private scripts/test-as-user.sh --inside "$scratch" \
    "$(rustc --print sysroot)" "$(realpath "$(command -v cargo-nextest)")" "$@" || code=$?
[[ -z ${TEST_REPORTS:-} || ! -e $scratch/report.xml ]] || cp "$scratch/report.xml" "$TEST_REPORTS/user.xml"
exit "$code"
