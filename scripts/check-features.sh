#!/bin/sh
# Checks that fiber builds with each of its features alone, without default features: a build of the
# whole workspace enables all of them together, and shows no feature that lacks another one.

set -eu

cd "$(dirname -- "$0")/.."

# The names in Cargo.toml's section of features.
features=$(sed -n '/^\[features\]/,/^\[dependencies\]/s/^\([a-z0-9-]*\) = .*/\1/p' Cargo.toml)

check() {
    echo "fiber without default features, with: ${1:-none}"
    "${CARGO:-cargo}" check --quiet --locked -p fiber --no-default-features --features "$1"
}

check ""
for feature in $features; do
    case $feature in
        default) ;;
        # The program that takes it chooses the version, as this does.
        kubernetes-own-version) K8S_OPENAPI_ENABLED_VERSION=1.33 check "$feature" ;;
        *) check "$feature" ;;
    esac
done
