#!/bin/sh
# What a reader pastes works before fiber is published, and the address of its repository stands in
# one place, from which all else takes it: `workspace.package.repository` of Cargo.toml.

cd "$(dirname "$0")/.." || exit 1
address=$(sed -n 's|^repository = "https://\(.*\)"$|\1|p' Cargo.toml)
test -n "$address" || { echo "Cargo.toml names no repository" >&2; exit 1; }

# check PROBLEM PATTERN: fails if a line has the pattern.
status=0
check() {
    if found=$(git grep -nE "$2" -- . ':!Cargo.toml' ':!scripts/check-address.sh'); then
        printf '%s:\n%s\n' "$1" "$found" >&2
        status=1
    fi
}

check "link relatively, in rustdoc by env!(\"CARGO_PKG_REPOSITORY\")" \
    "$(printf %s "$address" | sed 's/[.]/\\./g')"
check "this is another crate: link to src/lib.rs#struct.Pool.html" 'docs\.rs/fiber'
check "fiber is not published: \`cargo add fiber --path ../fiber\`, \`make install\`" \
    'cargo add fiber *($|#|`)|cargo install fiber-cli|^fiber = "'
exit $status
