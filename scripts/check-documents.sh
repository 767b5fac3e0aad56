#!/usr/bin/env bash
# Takes each program that README and documents print, as a reader would, with the features that its
# page has named above it (`cargo add fiber --features X`), and builds it in a crate outside of this
# workspace. The doc tests run the same programs, with all features. It compares the output that
# README shows below its program. It builds rustdoc's examples of actors with no crates but fiber and
# serde. Then it builds, tests and runs the projects that `fiber new` creates.

set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
repository=$PWD
cargo=${CARGO:-cargo}
# All crates share what they build, also with the next run: they are at one place.
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export CARGO_TARGET_DIR CARGO_PROFILE_DEV_DEBUG=0
outside=$CARGO_TARGET_DIR/documents
# Not in this repository, whose workspace would take in what `cargo new` makes.
projects=$(mktemp -d)
rm -rf "$outside"
trap 'rm -rf "$outside" "$projects"' EXIT

# Writes each program to FEATURES/src/bin/PAGE_LINE.rs, a test to FEATURES/tests/. Lines that rustdoc
# hides from its pages are printed in Markdown, and break what a reader pastes. The cookbook's
# snippets without a `main` get one, with the names that its introduction promises.
# shellcheck disable=SC2016
extract='
    FNR == 1 { features = "" ; page = FILENAME; gsub(/.*\/|\.md$/, "", page); page = tolower(page) }
    !inside && match($0, /cargo add fiber --features [a-z0-9,-]+/) {
        named = substr($0, RSTART, RLENGTH); sub(/.*--features /, "", named)
        features = features (features == "" ? "" : ",") named
    }
    !inside && /^```rust/ && !/compile_fail|ignore/ {
        inside = 1; text = /no_run/ ? "// no_run\n" : ""; is_program = 0; folder = "src/bin"
        lines = ""; start = FNR; next
    }
    inside && /^```/ {
        inside = 0
        if (!is_program && page == "cookbook") {
            is_program = 1
            text = text "use fiber::prelude::*;\n\n#[fiber::main]\n" \
                "async fn main() -> Result<(), Box<dyn std::error::Error>> {\n" \
                "#[allow(unused_variables)]\nlet pool = Pool::new(2)?;\n" lines "Ok(())\n}\n"
        } else {
            text = text lines
        }
        if (!is_program) next
        place = outside "/" (features == "" ? "default" : features) "/" folder
        system("mkdir -p " place)
        file = place "/" page "_" start ".rs"
        printf "%s", text > file
        close(file)
        output = file; sub(/rs$/, "out", output)
        next
    }
    printed && /^```/ { printed = 0; close(output); output = ""; next }
    printed { print > output; next }
    !inside && page == "readme" && output != "" && /^```text/ { printed = 1; next }
    !inside && NF { output = "" }
    inside {
        if ($0 ~ /^#( |$)/) {
            printf "%s:%d: a hidden line, which is printed here: %s\n", FILENAME, FNR, $0 > "/dev/stderr"
            failed = 1
        }
        if ($0 ~ /^(async )?fn main\(/) is_program = 1
        if ($0 ~ /test_harness!|use fiber::(sim|test)/) { is_program = 1; folder = "tests" }
        lines = lines $0 "\n"
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
        printf 'axum = { version = "0.8", default-features = false, features = ["http1", "tokio"] }\n'
        printf 'tokio = { version = "1", features = ["net", "signal", "sync"] }\n'
    } >"$crate/Cargo.toml"
    # The same versions, without a question to a registry.
    cp Cargo.lock "$crate"
    mkdir -p "$crate/src"
    : >"$crate/src/lib.rs"
    echo "programs with $features: $(find "$crate" -name '*_*.rs' | wc -l)"
    (cd "$crate" && "$cargo" check --quiet --all-targets)
done

# Runs a program, whose output goes to run.log.
run() {
    (cd "${1%/src/*}" && "$cargo" run --quiet --bin "$(basename "$1" .rs)") \
        &>"$outside/run.log" || { cat "$outside/run.log" && exit 1; }
}

# The cookbook's snippets run, too.
for program in $(grep -L '^// no_run' "$outside"/*/src/bin/cookbook_*.rs); do
    run "$program"
done
for output in "$outside"/*/src/bin/*.out; do
    run "${output%.out}.rs"
    diff "$output" "$outside/run.log"
done

# Writes the examples with an actor as one page. Those that name another crate are left out.
# shellcheck disable=SC2016
examples='
    match($0, /^ *\/\/[\/!] ```/) {
        if (inside && lines ~ /impl Actor for/ && lines !~ /tokio::|futures_util|tempfile/) {
            printf "```no_run\n%s```\n\n", lines
        }
        open = !open; inside = open && substr($0, RLENGTH + 1) ~ /^(no_run)?$/; lines = ""
        next
    }
    inside && match($0, /include_str!\("[^"]*/) {
        page = FILENAME; sub(/[^\/]*$/, "", page)
        page = page substr($0, RSTART + 14, RLENGTH - 14)
        while ((getline line < page) > 0) lines = lines line "\n"
        close(page); next
    }
    inside { sub(/^ *\/\/[\/!] ?/, ""); lines = lines $0 "\n" }
'
crate=$outside/rustdoc
mkdir -p "$crate/src"
git ls-files 'actors/*.rs' src/lib.rs | xargs awk "$examples" >"$crate/src/examples.md"
{
    printf '[package]\nname = "outside"\nedition = "2024"\n\n[workspace]\n\n[dependencies]\n'
    printf 'fiber = { path = "%s" }\n' "$repository"
    printf 'serde = { version = "1", features = ["derive"] }\n'
} >"$crate/Cargo.toml"
cp Cargo.lock "$crate"
echo '#![doc = include_str!("examples.md")]' >"$crate/src/lib.rs"
echo "examples of rustdoc: $(grep -c '^```no_run' "$crate/src/examples.md")"
(cd "$crate" && "$cargo" test --quiet --doc)

# Builds the command as `make test` does, and so not twice.
env -u CARGO_PROFILE_DEV_DEBUG "$cargo" test --quiet --no-run --workspace --all-features --test top
for variant in pool actor ring durable service; do
    option=$([[ $variant == pool ]] || echo "--$variant")
    # shellcheck disable=SC2086 # one word, or none
    (
        cd "$projects"
        "$CARGO_TARGET_DIR/debug/fiber" new $option "new-$variant" &>new.log || {
            cat new.log
            exit 1
        }
        cp "$repository/Cargo.lock" "new-$variant"
        cd "new-$variant"
        "$cargo" fmt --check
        "$cargo" clippy --quiet --all-targets -- -D warnings
        "$cargo" test --quiet
        # A service runs until it is ended, as its test does.
        [[ $variant == service ]] || "$cargo" run --quiet >/dev/null
        echo "the project of fiber new $option builds, runs and passes its tests"
    )
done
