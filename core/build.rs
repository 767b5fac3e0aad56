//! Checks for cmake where the feature `nng` is on.
//!
//! The build of the crate `nng-sys` ends with a panic that names neither fiber nor a remedy when
//! cmake is missing. This check runs earlier: it waits for no crate, while `nng-sys` waits for
//! bindgen, and cargo prefers it, because more crates depend on this one.

use std::env;
use std::process::Command;

const NEEDED: (u32, u32) = (3, 13);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Not `PATH`: a check that fails runs again anyway, and another `PATH` would rebuild all of
    // fiber.
    for variable in ["CMAKE", "NNG_NO_VENDOR"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    // NNG_NO_VENDOR makes nng-sys link a library that is installed already.
    if env::var_os("CARGO_FEATURE_NNG").is_none() || env::var_os("NNG_NO_VENDOR").is_some() {
        return;
    }
    let program = env::var_os("CMAKE").unwrap_or_else(|| "cmake".into());
    let found = match Command::new(&program).arg("--version").output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            match version(&text) {
                Some(version) if version >= NEEDED => return,
                Some((major, minor)) => format!("it is version {major}.{minor}"),
                None => format!("it does not print a version ({})", output.status),
            }
        }
        Err(error) => error.to_string(),
    };
    let (major, minor) = NEEDED;
    println!(
        "cargo::error=fiber's feature `nng`, which `docker` and `kubernetes` include, builds the \
         library NNG with cmake {major}.{minor} or later, and `{}` can't be used: {found}",
        program.display()
    );
    println!(
        "cargo::error=Install cmake (Debian, Ubuntu: apt-get install cmake; Fedora: dnf install \
         cmake; without root: pip install cmake), or build without these features: a program whose \
         processes run on this host needs none of them"
    );
}

/// Finds the version in the first line: `cmake version 3.31.6`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("cmake version ")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.trim().parse().ok()?))
}
