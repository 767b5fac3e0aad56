//! The cost of fiber as a dependency: CPU time to build an empty program, its crates, and the size
//! of the binary, beside other actor crates.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use super::REPOSITORY;
use crate::table::{Figure, Row, Table};

/// Crates from the registry, each in its current version with default features.
const PEERS: [&str; 2] = ["ractor", "kameo"];

/// The cost of one empty program.
struct Built {
    /// User and system time of all compilers, in seconds.
    cpu: f64,
    crates: usize,
    bytes: f64,
}

/// Builds an empty `main` with fiber, and one with each peer, in debug profile and in directories
/// outside of the repository. Needs the registry.
pub(super) fn building(table: &mut Table) -> anyhow::Result<()> {
    let own = format!("fiber = {{ path = {:?} }}", REPOSITORY);
    let fiber = build("fiber", &own, "fiber::init()")?;
    let mut time = Row::new("an empty program: CPU time to build it", Figure::Seconds(fiber.cpu))
        .at_most(2.0, "ractor")
        .note(
            "A debug build of `fn main() {}` with one dependency, its default features, and an \
             empty target directory; with fiber, `fn main() { fiber::init() }`. Nothing is built \
             incrementally, as cargo builds what comes from a registry.",
        );
    let mut crates = format!("Crates of others: fiber {}", fiber.crates);
    let mut size = Row::new("an empty program: binary", Figure::Bytes(fiber.bytes));
    for peer in PEERS {
        match build(peer, &format!("{peer} = \"*\""), "") {
            Ok(built) => {
                time = time.beside(peer, Figure::Seconds(built.cpu));
                crates += &format!(", {peer} {}", built.crates);
                size = size.beside(peer, Figure::Bytes(built.bytes));
            }
            Err(error) => time = time.note(format!("{peer} is left out: {error:#}")),
        }
    }
    table.push(time.note(crates + "."));
    table.push(size);
    Ok(())
}

fn build(name: &str, dependency: &str, statement: &str) -> anyhow::Result<Built> {
    let directory = tempfile::tempdir()?;
    let manifest = format!(
        "[package]\nname = \"empty\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [dependencies]\n{dependency}\n\n\
         [workspace]\n"
    );
    fs::write(directory.path().join("Cargo.toml"), manifest)?;
    fs::create_dir(directory.path().join("src"))?;
    fs::write(directory.path().join("src/main.rs"), format!("fn main() {{ {statement} }}\n"))?;
    // Downloads are not part of the measurement.
    cargo(directory.path(), &["fetch"])?;
    let before = children_cpu()?;
    let log = cargo(directory.path(), &["build", "--offline"])?;
    let cpu = children_cpu()? - before;
    let crates = log.lines().filter(|line| line.trim_start().starts_with("Compiling ")).count();
    let bytes = fs::metadata(directory.path().join("target/debug/empty"))?.len() as f64;
    eprintln!("  {name}: {cpu:.1} s of CPU, {crates} crates, {bytes} bytes");
    // The program itself is not a dependency.
    Ok(Built { cpu, crates: crates.saturating_sub(1), bytes })
}

/// Runs cargo in a directory and returns its log.
fn cargo(directory: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(arguments)
        .current_dir(directory)
        .env("CARGO_TARGET_DIR", directory.join("target"))
        .env("CARGO_INCREMENTAL", "0")
        .env_remove("RUSTFLAGS")
        .output()
        .context("running cargo")?;
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "cargo {}: {log}", arguments.join(" "));
    Ok(log)
}

/// Returns the CPU time of this process's ended children and their ended children, in seconds.
fn children_cpu() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/self/stat")?;
    // The name, in parentheses, may contain spaces. The fields after it start with the third.
    let (_, fields) = text.rsplit_once(") ").context("no name in /proc/self/stat")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let field = |number: usize| -> anyhow::Result<f64> {
        Ok(fields.get(number - 3).context("a field is missing in /proc/self/stat")?.parse()?)
    };
    // cutime and cstime.
    Ok((field(16)? + field(17)?) / rustix::param::clock_ticks_per_second() as f64)
}
