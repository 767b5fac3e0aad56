#!/usr/bin/env bash
# Compiles a crate of the workspace for `make sim SIM_PROFILE=steps`: its code calls a function of
# the simulated world (`sim/world/src/steps.rs`) at each basic block. Cargo calls this as
# RUSTC_WORKSPACE_WRAPPER, with the compiler's path and arguments.

set -euo pipefail

# The world does not call itself. Procedural macros and build scripts have no world.
case " $* " in
    *" --crate-name fiber_world "* | *" --crate-name build_script_build "* | *" proc-macro "*) ;;
    *" --crate-name "*)
        set -- "$@" -C passes=sancov-module -C llvm-args=-sanitizer-coverage-level=3 \
            -C llvm-args=-sanitizer-coverage-trace-pc-guard
        ;;
esac
exec "$@"
