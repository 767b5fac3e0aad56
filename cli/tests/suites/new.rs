//! `fiber new`: what it writes and what it refuses. `scripts/check-documents.sh` builds, tests and
//! runs its projects.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::command::{fails, fiber, text};

fn folder() -> TempDir {
    tempfile::tempdir().expect("there is room")
}

/// Creates a project in this folder, and returns the files that a reader of its README opens.
fn create(folder: &TempDir, arguments: &[&str]) -> [String; 4] {
    let mut command = fiber(&[&["new"], arguments].concat());
    let output = command.current_dir(folder).output().expect("it can be started");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let name = arguments.last().expect("it has a name");
    assert!(text(&output.stdout).contains(&format!("  cd {name}\n  cargo run\n")));
    ["Cargo.toml", "README.md", "src/main.rs", "fiber.toml"].map(|file| {
        let path = folder.path().join(name).join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    })
}

#[test]
fn a_project_uses_the_checkout_of_the_command() {
    let folder = folder();
    let [manifest, readme, program, configuration] = create(&folder, &["primes"]);
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it has one");
    let dependency = format!("[dependencies]\nfiber = {{ path = {checkout:?} }}\n");
    assert!(manifest.contains(&dependency), "{manifest}");
    assert!(readme.starts_with("# primes\n") && readme.lines().count() <= 14, "{readme}");
    for page in [readme, configuration] {
        assert!(page.contains(checkout.to_str().expect("it is text")), "{page}");
    }
    assert!(program.contains("RemoteAddr") && program.contains("test_harness!"), "{program}");
    let ignored = fs::read_to_string(folder.path().join("primes/.gitignore"));
    assert!(ignored.expect("it is a repository").contains("/target"));
}

#[test]
fn a_project_can_use_another_checkout() {
    let (folder, checkout) = (folder(), Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let path = checkout.display().to_string();
    let [manifest, ..] = create(&folder, &["--ring", "--path", &path, "below/fit"]);
    let checkout = checkout.canonicalize().expect("it is there");
    assert!(manifest.contains(&format!("fiber = {{ path = {checkout:?} }}")), "{manifest}");
    assert!(manifest.contains("name = \"fit\""), "{manifest}");
}

#[test]
fn a_project_can_use_a_repository() {
    let folder = folder();
    let url = "https://example.org/a/fiber";
    let [manifest, readme, ..] = create(&folder, &["--git", url, "primes"]);
    assert!(manifest.contains(&format!("fiber = {{ git = {url:?} }}")), "{manifest}");
    assert!(readme.contains(&format!("[fiber]({url})")), "{readme}");
}

#[test]
fn each_variant_has_its_program() {
    let folder = folder();
    for (option, word) in
        [("--actor", "Snapshot"), ("--ring", "all_reduce"), ("--durable", "sweep")]
    {
        let [_, _, program, _] = create(&folder, &[option, &format!("project{option}")]);
        assert!(program.contains(word), "{option}: {program}");
    }
    let [manifest, _, program, _] = create(&folder, &["--service", "web"]);
    for word in ["with_graceful_shutdown", "Entities::builder"] {
        assert!(program.contains(word), "{program}");
    }
    assert!(manifest.contains(", features = [\"metrics\"] }\n"), "{manifest}");
    assert!(manifest.contains("\naxum = ") && manifest.contains("\ntokio = "), "{manifest}");
    assert!(folder.path().join("web/tests/service.rs").exists());
    let test = fs::read_to_string(folder.path().join("project--durable/tests/resume.rs"));
    assert!(test.expect("it has one").contains("CARGO_BIN_EXE_project--durable"));
}

#[test]
fn a_member_of_a_workspace_joins_it() {
    let folder = folder();
    let root = folder.path().join("Cargo.toml");
    fs::write(&root, "[workspace]\nmembers = []\nresolver = \"3\"\n").expect("there is room");
    create(&folder, &["primes"]);
    assert!(fs::read_to_string(root).expect("it is there").contains("members = [\"primes\"]"));
}

/// Each commented option of fiber.toml is one that fiber has, with a value that it takes.
#[test]
fn the_commented_options_are_right() {
    let folder = folder();
    let [.., configuration] = create(&folder, &["primes"]);
    let options = configuration.lines().filter_map(|line| {
        let option = line.strip_prefix("# ")?;
        option.split_once(" = ").filter(|(name, _)| !name.contains(' ')).map(|_| option)
    });
    let options: Vec<_> = options.collect();
    assert!(options.len() > 10, "{configuration}");
    let path = folder.path().join("all.toml");
    fs::write(&path, options.join("\n")).expect("there is room");
    let output = fiber(&["ps"]).env("FIBER_CONFIG", &path).output().expect("it can be started");
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn bad_names_are_refused_with_the_reason() {
    for (name, reason) in [
        ("two words", "use letters, digits"),
        ("1st", "begin with a letter"),
        ("-n", "'-n'"),
        ("prüfung", "use letters, digits"),
        ("..", "use letters, digits"),
        ("fiber", "a crate that the package uses"),
        ("serde", "a crate that the package uses"),
        ("fn", "it is a Rust keyword"),
        ("test", "Rust's built-in test library"),
    ] {
        let folder = folder();
        let path = folder.path().join(name).display().to_string();
        let (argument, code) = if name == "-n" { (name, 2) } else { (path.as_str(), 1) };
        fails(&["new", argument], code, &[name, reason]);
        assert_eq!(fs::read_dir(&folder).expect("it is there").count(), 0, "{name}");
    }
}

#[test]
fn an_existing_directory_is_left_alone() {
    let folder = folder();
    let path = folder.path().join("primes");
    fs::create_dir(&path).expect("there is room");
    fails(&["new", &path.display().to_string()], 1, &["primes` exists already", "another name"]);
    assert_eq!(fs::read_dir(path).expect("it is there").count(), 0);
}

#[test]
fn other_mistakes_are_explained() {
    fails(&["new"], 2, &["<NAME>"]);
    fails(&["new", "--actor", "--ring", "x"], 2, &["--actor", "--ring"]);
    fails(&["new", "--git", "x", "--path", "..", "x"], 2, &["--git", "--path"]);
    let folder = folder();
    let wrong = folder.path().display().to_string();
    let path = folder.path().join("primes").display().to_string();
    fails(&["new", "--path", &wrong, &path], 1, &[&wrong, "no checkout of fiber", "Cargo.toml"]);
    // A shell without cargo.
    let output = fiber(&["new", &path]).env("PATH", "/no/such").output().expect("it is started");
    assert!(text(&output.stderr).contains("install Rust"), "{}", text(&output.stderr));
    assert!(!Path::new(&path).exists());
}
