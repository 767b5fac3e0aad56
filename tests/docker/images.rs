//! Configured images, and their errors.

use std::io::{ErrorKind, Read};
use std::net::TcpListener;

use fiber_test_support::docker::{docker, try_docker};
use fiber_test_support::trial;
use fiber_test_support::wait::LONG;

use crate::engine::{containers, inspect, leaves_nothing, program};

fn fails(image: &str, program_path: Option<&str>, words: &[&str]) {
    let mut setup = program("one task").env("FIBER_IMAGE", image);
    if let Some(path) = program_path {
        setup = setup.env("FIBER_PROGRAM", path);
    }
    let ending = leaves_nothing(setup.start()).code(0);
    ending.says(&["error: "]).says(words);
}

/// Returns the image built from this program, the program's path in it, and the variable for its
/// libraries.
pub(crate) fn own_image() -> (String, String, String) {
    let mut model = program("ready").start();
    model.line("ready: 2");
    let container = containers(model.pid()).remove(0);
    let found = (
        inspect(&container, "{{.Image}}"),
        inspect(&container, "{{index .Config.Entrypoint 0}}"),
        inspect(&container, "{{range .Config.Env}}{{println .}}{{end}}"),
    );
    model.say("go on");
    leaves_nothing(model).code(0);
    let libraries = found
        .2
        .lines()
        .find(|line| line.starts_with("LD_LIBRARY_PATH="))
        .unwrap_or("UNUSED=1")
        .to_string();
    (found.0, found.1, libraries)
}

/// An image of one test. Dropping this removes it.
struct Image(String);

impl Image {
    /// Creates an image from `base` with changed settings, and perhaps another file in the place of
    /// `target`.
    fn new(
        name: &str,
        base: &str,
        changes: &[&str],
        replaced: Option<(&std::path::Path, &str)>,
    ) -> Image {
        let name = format!("fiber-test/{name}-{}", std::process::id());
        let container = docker(&["create", base, "unused"]);
        if let Some((file, target)) = replaced {
            docker(&["cp", &file.display().to_string(), &format!("{container}:{target}")]);
        }
        let changes = changes.iter().flat_map(|change| ["--change", change]);
        let command: Vec<&str> = ["commit"]
            .into_iter()
            .chain(changes)
            .chain([container.as_str(), name.as_str()])
            .collect();
        docker(&command);
        docker(&["rm", &container]);
        Image(name)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = try_docker(&["rmi", "-f", &self.0]);
    }
}

#[trial]
fn an_image_that_is_missing() {
    let name = "localhost:1/fiber-test/no-such-image:1";
    fails(
        name,
        None,
        &["the Docker host has no image `localhost:1/fiber-test/no-such-image:1`", "docker pull"],
    );
}

#[trial]
fn an_image_that_takes_too_long() {
    // A registry that accepts connections and never answers.
    let registry = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let name = format!("{}/fiber-test/slow:1", registry.local_addr().expect("it has one"));
    let setup = program("one task").env("FIBER_IMAGE", &name).env("FIBER_PULL_TIMEOUT", "2s");
    let limit =
        format!("the image `{name}` was not pulled within 2s (`pull_timeout` sets the limit)");
    leaves_nothing(setup.start()).code(0).says(&["error: ", &limit]);
    // A busy engine has not connected within the limit, and connects no more. Else it closes the
    // connection.
    registry.set_nonblocking(true).expect("it is open");
    while let Ok((mut call, _)) = registry.accept() {
        call.set_nonblocking(false).expect("it is open");
        call.set_read_timeout(Some(LONG)).expect("it is no zero");
        if let Err(error) = call.read_to_end(&mut Vec::new()) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        }
    }
}

#[trial]
fn an_image_without_the_program() {
    let (image, ..) = own_image();
    fails(
        &image,
        Some("/no/such/program"),
        &["has no executable program at `/no/such/program`", "rebuild the image"],
    );
}

#[trial]
fn an_image_without_an_entry_point() {
    let (image, ..) = own_image();
    fails(&image, None, &["does not say what to run: give it an ENTRYPOINT"]);
}

#[trial]
fn an_image_with_an_entry_point() {
    let (base, path, libraries) = own_image();
    let entry = format!("ENTRYPOINT [\"{path}\"]");
    let image = Image::new("given", &base, &[&entry, &format!("ENV {libraries}")], None);
    leaves_nothing(program("pi").env("FIBER_IMAGE", &image.0).start()).code(0).says(&["pi: 3.14"]);
}

#[trial]
fn an_image_of_another_build() {
    let (base, path, libraries) = own_image();
    // Each build has its own build id, while the image's tag has the id of this build.
    let executable = std::fs::read("/proc/self/exe").expect("it can be read");
    let other = tempfile::NamedTempFile::new().expect("there is room");
    std::fs::write(other.path(), with_another_build_id(executable)).expect("there is room");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(other.path(), std::fs::Permissions::from_mode(0o755))
        .expect("it is ours");
    let entry = format!("ENTRYPOINT [\"{path}\"]");
    let changes = [entry.as_str(), &format!("ENV {libraries}")];
    let image = Image::new("other", &base, &changes, Some((other.path(), &path)));
    fails(&image.0, None, &["it runs build ", "this process build ", "rebuild the image"]);
}

/// Changes the build id in an executable.
fn with_another_build_id(mut executable: Vec<u8>) -> Vec<u8> {
    // The note's header: lengths of name and id, type 3, and the name.
    let head = [4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0];
    let place = executable
        .windows(head.len())
        .position(|window| window == head)
        .expect("it has a build id");
    executable[place + head.len()] ^= 0xff;
    executable
}

/// Builds the final stage of the Dockerfile, with a local image in the place of its base.
#[trial]
fn the_dockerfile_of_the_examples() {
    let (base, ..) = own_image();
    let text = include_str!("../../examples/Dockerfile");
    let (_, stage) = text.rsplit_once("\nFROM ").expect("it has two stages");
    let (_, stage) = stage.split_once('\n').expect("there is more than a base");
    let built = "--from=build /src/target/release/examples/pi_estimation";
    assert!(stage.contains(built), "{stage}");
    let directory = tempfile::tempdir().expect("there is room");
    std::fs::copy("/proc/self/exe", directory.path().join("program")).expect("there is room");
    let name = format!("fiber-test/dockerfile-{}", std::process::id());
    docker(&["tag", &base, &format!("{name}-base")]);
    let _base = Image(format!("{name}-base"));
    let stage = format!("FROM {name}-base\n{}", stage.replace(built, "program"));
    std::fs::write(directory.path().join("Dockerfile"), stage).expect("there is room");
    docker(&["build", "-q", "-t", &name, &directory.path().display().to_string()]);
    let image = Image(name);
    leaves_nothing(program("pi").env("FIBER_IMAGE", &image.0).start()).code(0).says(&["pi: 3.14"]);
}
