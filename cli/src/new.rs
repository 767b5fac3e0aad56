//! `fiber new`: creates a project that builds, runs and has a test.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail, ensure};

use crate::args::{New, Source, Variant};

/// The files of a project that differ from variant to variant.
struct Template {
    program: &'static str,
    /// A test that runs the program: the name of its file, and its text.
    test: Option<(&'static str, &'static str)>,
    /// Features of fiber, as a list in TOML has them.
    features: &'static str,
    /// Lines of Cargo.toml for other crates.
    dependencies: &'static str,
    summary: &'static str,
}

/// A template whose program needs no other crates, and has its tests itself.
const fn plain(program: &'static str, summary: &'static str) -> Template {
    Template { program, test: None, features: "", dependencies: "", summary }
}

const POOL: Template = plain(
    include_str!("new/templates/pool.rs"),
    "A pool of worker processes, and an actor in a process of its own.",
);
const ACTOR: Template = plain(
    include_str!("new/templates/actor.rs"),
    "An actor in a process of its own, which keeps its state when the process dies.",
);
const RING: Template = plain(
    include_str!("new/templates/ring.rs"),
    "A ring of processes that work together and reduce arrays.",
);
const DURABLE: Template = Template {
    test: Some(("resume", include_str!("new/templates/durable_test.rs"))),
    ..plain(
        include_str!("new/templates/durable.rs"),
        "A sweep that goes on where it was when the program is killed and started again.",
    )
};
const SERVICE: Template = Template {
    test: Some(("service", include_str!("new/templates/service_test.rs"))),
    features: "\"metrics\"",
    dependencies: "axum = { version = \"0.8\", default-features = false, features = [\"http1\", \
                   \"tokio\"] }\ntokio = { version = \"1\", features = [\"macros\", \"net\", \
                   \"signal\"] }\n",
    ..plain(
        include_str!("new/templates/service.rs"),
        "A service: HTTP in front, actors by key behind, whose events are in a journal. `curl -X \
         POST` of the printed link counts a visit, `FIBER_METRICS=127.0.0.1:9464` serves metrics.",
    )
};
const CONFIGURATION: &str = include_str!("new/templates/fiber.toml");
const README: &str = include_str!("new/templates/README.md");

impl Variant {
    fn template(self) -> &'static Template {
        match self {
            Variant { actor: true, .. } => &ACTOR,
            Variant { ring: true, .. } => &RING,
            Variant { durable: true, .. } => &DURABLE,
            Variant { service: true, .. } => &SERVICE,
            _ => &POOL,
        }
    }
}

pub(crate) fn new(New { variant, source, directory }: &New) -> anyhow::Result<ExitCode> {
    let name = name(directory)?;
    ensure!(
        !directory.exists(),
        "`{}` exists already: choose another name, or remove it",
        directory.display()
    );
    let fiber = Dependency::on(source)?;
    create_package(directory, name)?;
    write_files(directory, name, &fiber, variant.template())
        .with_context(|| format!("`{}` can't be written", directory.display()))?;
    say!("Next:\n  cd {}\n  cargo run\n  cargo test", directory.display());
    say!("README.md has more, fiber.toml the options.");
    Ok(ExitCode::SUCCESS)
}

/// Returns the name of the package: the last part of its directory. Cargo checks the rest, such as
/// Rust's keywords.
fn name(directory: &Path) -> anyhow::Result<&str> {
    let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    ensure!(
        name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(plain),
        "`{}` can't be the name of a package: use letters, digits, `-` and `_`, and begin with a \
         letter",
        directory.file_name().unwrap_or(directory.as_os_str()).display()
    );
    ensure!(
        !["fiber", "serde"].contains(&name),
        "`{name}` is the name of a crate that the package uses: choose another one"
    );
    Ok(name)
}

/// Where a project takes fiber from.
struct Dependency {
    /// The key in Cargo.toml: `path` or `git`.
    key: &'static str,
    place: String,
}

impl Dependency {
    fn on(Source { path, git }: &Source) -> anyhow::Result<Dependency> {
        if let Some(url) = git {
            return Ok(Dependency { key: "git", place: url.clone() });
        }
        let own = || concat!(env!("CARGO_MANIFEST_DIR"), "/..").into();
        let checkout: PathBuf = path.clone().unwrap_or_else(own);
        let manifest = fs::read_to_string(checkout.join("Cargo.toml")).unwrap_or_default();
        ensure!(
            manifest.lines().any(|line| line == "name = \"fiber\""),
            "`{}` is no checkout of fiber: give the folder with its Cargo.toml by --path, or a \
             repository by --git. The default is the checkout that built this command",
            checkout.display()
        );
        let place = checkout.canonicalize()?;
        let place = place.to_str().context("the path of the checkout is no UTF-8")?;
        Ok(Dependency { key: "path", place: place.to_string() })
    }

    /// Returns the line of Cargo.toml, with these features.
    fn line(&self, features: &str) -> String {
        let features = match features {
            "" => String::new(),
            features => format!(", features = [{features}]"),
        };
        // A text of JSON is one of TOML.
        format!("fiber = {{ {} = {}{features} }}", self.key, serde_json::json!(self.place))
    }
}

/// Runs `cargo new`, which also makes a repository of git, or a member of the workspace around it.
fn create_package(directory: &Path, name: &str) -> anyhow::Result<()> {
    let cargo = Command::new("cargo")
        .args(["new", "--bin", "--name", name])
        .arg(directory)
        .output()
        .context("`cargo new` can't be run: install Rust (https://rustup.rs)")?;
    let output = String::from_utf8_lossy(&cargo.stderr);
    if !cargo.status.success() {
        let problem = output.lines().find_map(|line| line.strip_prefix("error: "));
        bail!("`cargo new` has failed: {}", problem.unwrap_or(output.trim()));
    }
    output.lines().filter(|line| !line.starts_with("note: ")).for_each(|line| tell!("{line}"));
    Ok(())
}

fn write_files(
    directory: &Path,
    name: &str,
    fiber: &Dependency,
    template: &Template,
) -> io::Result<()> {
    let manifest = directory.join("Cargo.toml");
    let Template { features, dependencies, .. } = template;
    let serde = "serde = { version = \"1\", features = [\"derive\"] }";
    let fiber_line = fiber.line(features);
    let dependencies = format!("[dependencies]\n{dependencies}{fiber_line}\n{serde}\n");
    let package = fs::read_to_string(&manifest)?;
    fs::write(&manifest, package.replacen("[dependencies]\n", &dependencies, 1))?;
    fs::write(directory.join("src/main.rs"), template.program)?;
    if let Some((file, test)) = template.test {
        fs::create_dir(directory.join("tests"))?;
        fs::write(directory.join(format!("tests/{file}.rs")), test.replace("{name}", name))?;
    }
    let fill = |text: &str| {
        let text = text.replace("{name}", name).replace("{summary}", template.summary);
        text.replace("{fiber}", &fiber.place)
    };
    fs::write(directory.join("fiber.toml"), fill(CONFIGURATION))?;
    fs::write(directory.join("README.md"), fill(README))?;
    // There is none in a repository that was there before.
    let ignored = directory.join(".gitignore");
    if ignored.exists() {
        fs::write(ignored, "/target\n/fiber-journals\n/fiber-logs\n")?;
    }
    Ok(())
}
