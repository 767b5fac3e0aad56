#!/usr/bin/env bash
# Takes each program that README and documents print, as a reader would, with the features that its
# page has named above it (`cargo add fiber --features X`), and builds it in a crate outside of this
# workspace. The doc tests run the same programs, with all features.

set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
repository=$PWD
# At one place, so that the next run finds what this one builds.
outside=$(realpath -m "${CARGO_TARGET_DIR:-target}")/documents
rm -rf "$outside"
trap 'rm -rf "$outside"' EXIT

# Writes each program to FEATURES/src/bin/PAGE_LINE.rs, a test to FEATURES/tests/. Lines that rustdoc
# hides from its pages are printed in Markdown, and break what a reader pastes.
# shellcheck disable=SC2016
extract='
    FNR == 1 { features = "" ; page = FILENAME; gsub(/.*\/|\.md$/, "", page); page = tolower(page) }
    !inside && match($0, /cargo add fiber --features [a-z0-9,-]+/) {
        named = substr($0, RSTART, RLENGTH); sub(/.*--features /, "", named)
        features = features (features == "" ? "" : ",") named
    }
    !inside && /^```rust/ && !/compile_fail|ignore/ {
        inside = 1; text = ""; is_program = 0; folder = "src/bin"; start = FNR; next
    }
    inside && /^```/ {
        inside = 0
        if (!is_program) next
        place = outside "/" (features == "" ? "default" : features) "/" folder
        system("mkdir -p " place)
        file = place "/" page "_" start ".rs"
        printf "%s", text > file
        close(file)
        next
    }
    inside {
        if ($0 ~ /^#( |$)/) {
            printf "%s:%d: a hidden line, which is printed here: %s\n", FILENAME, FNR, $0 > "/dev/stderr"
            failed = 1
        }
        if ($0 ~ /^(async )?fn main\(/) is_program = 1
        if ($0 ~ /test_harness!/) { is_program = 1; folder = "tests" }
        text = text $0 "\n"
    }
    END { exit failed }
'
awk -v outside="$outside" "$extract" README.md docs/*.md

for crate in "$outside"/*/; do
    features=$(basename "$crate")
    {
        printf '[package]\nname = "outside"\nedition = "2024"\n\n[workspace]\n\n[dependencies]\n'
        printf 'fiber = { path = "%s", features = [%s] }\n' "$repository" \
            "$([[ $features == default ]] || sed 's/[^,]*/"&"/g' <<<"$features")"
        printf 'futures-util = "0.3"\nserde = { version = "1", features = ["derive"] }\n'
        printf 'tracing = "0.1"\ntracing-subscriber = "0.3"\n'
    } >"$crate/Cargo.toml"
    # The same versions, without a question to a registry.
    cp Cargo.lock "$crate"
    mkdir -p "$crate/src"
    : >"$crate/src/lib.rs"
    echo "programs with $features: $(find "$crate" -name '*_*.rs' | wc -l)"
    (cd "$crate" && "${CARGO:-cargo}" check --quiet --all-targets)
done
