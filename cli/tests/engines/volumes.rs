//! Volumes, which outlive sessions, and `fiber cp`.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};

use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use rustix::process::Signal;

use crate::engine::{Engine, TestVolume, fiber, run};

#[trial]
fn files_outlive_the_session(engine: &'static dyn Engine) {
    let claim = TestVolume::new(engine);
    let again = || run(engine, &["-a", "-v", &claim.name], "persistent").run().code(0);
    again().says(&["lines: 1", "this is run 1"]);
    again().says(&["lines: 2", "this is run 1", "this is run 2"]);
    // Programs that do not use fiber work as well.
    fiber(engine, &["run", "-a", "-v", &claim.name, "cat", "/persistent/notes.txt"])
        .run()
        .code(0)
        .says(&["this is run 2"]);
}

#[trial]
fn a_volume_is_mounted_at_its_path(engine: &'static dyn Engine) {
    let (first, second) = (TestVolume::new(engine), TestVolume::new(engine));
    let volumes = [&*first.name, &second.at("/elsewhere:ro")];
    // Only shell builtins: the image has no other programs.
    let line = "echo hello > /persistent/a && read word < /persistent/a && echo $word && ! echo \
                hello > /elsewhere/a";
    let ending =
        fiber(engine, &["run", "-a", "-v", volumes[0], "-v", volumes[1], "bash", "-c", line]).run();
    let ending = ending.code(0).says(&["hello"]);
    let said = if engine.separates_streams() { &ending.errors } else { &ending.out };
    assert!(said.contains("Read-only file system"), "{said}");
}

#[track_caller]
fn copies(engine: &'static dyn Engine, source: &str, target: &str) {
    fiber(engine, &["cp", source, target]).run().code(0);
}

#[trial]
fn files_are_copied_both_ways(engine: &'static dyn Engine) {
    let claim = TestVolume::new(engine);
    let host = tempfile::tempdir().expect("there is room");
    let path = |name: &str| host.path().join(name).display().to_string();
    let content: Vec<u8> =
        (0..3_000_000u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(path("a"), &content).expect("there is room");
    fs::set_permissions(path("a"), fs::Permissions::from_mode(0o640)).expect("it is ours");
    copies(engine, &path("a"), &claim.at("/"));
    copies(engine, &path("a"), &claim.at("/b"));
    for name in ["/a", "/b"] {
        copies(engine, &claim.at(name), &path("back"));
        assert_eq!(fs::read(path("back")).expect("it is there"), content);
        assert_eq!(
            fs::metadata(path("back")).expect("it is there").permissions().mode() & 0o777,
            0o640
        );
    }
    assert!(engine.users_of(&claim.name).is_empty());
}

#[trial]
fn directories_are_copied_recursively(engine: &'static dyn Engine) {
    let claim = TestVolume::new(engine);
    let host = tempfile::tempdir().expect("there is room");
    let path = |name: &str| host.path().join(name).display().to_string();
    fs::create_dir_all(path("in/deep/er")).expect("there is room");
    fs::write(path("in/deep/er/file"), "content").expect("there is room");
    symlink("deep/er/file", path("in/link")).expect("there is room");
    // Like `cp -r`: the copy becomes the target if there is none, and goes into it if there is one.
    copies(engine, &path("in"), &claim.at("/out"));
    copies(engine, &path("in"), &claim.at("/out"));
    copies(engine, &claim.at("/out"), &path("back"));
    copies(engine, &claim.at("/out/deep"), &path("back"));
    for name in ["back/deep/er/file", "back/in/deep/er/file", "back/link", "back/in/link"] {
        assert_eq!(
            fs::read(path(name)).unwrap_or_else(|error| panic!("{name}: {error}")),
            b"content"
        );
    }
    assert!(fs::symlink_metadata(path("back/link")).expect("it is there").is_symlink());
    copies(engine, &claim.at("/"), &path("all"));
    assert_eq!(fs::read(path("all/out/deep/er/file")).expect("it is there"), b"content");
}

#[trial]
fn files_are_copied_between_volumes(engine: &'static dyn Engine) {
    let (first, second) = (TestVolume::new(engine), TestVolume::new(engine));
    let host = tempfile::tempdir().expect("there is room");
    let path = |name: &str| host.path().join(name).display().to_string();
    fs::write(path("a"), "content").expect("there is room");
    copies(engine, &path("a"), &first.at("/"));
    copies(engine, &first.at("/a"), &second.at("/b"));
    copies(engine, &second.at("/b"), &path("back"));
    assert_eq!(fs::read(path("back")).expect("it is there"), b"content");
    assert!(engine.users_of(&first.name).is_empty() && engine.users_of(&second.name).is_empty());
}

#[trial]
fn a_failed_copy_is_explained_and_leaves_nothing(engine: &'static dyn Engine) {
    let claim = TestVolume::new(engine);
    let host = tempfile::tempdir().expect("there is room");
    let path = |name: &str| host.path().join(name).display().to_string();
    fs::create_dir(path("directory")).expect("there is room");
    fs::write(path("file"), "content").expect("there is room");
    copies(engine, &path("file"), &claim.at("/file"));
    let fails = |source: &str, target: &str, words: &str| {
        let ending = fiber(engine, &["cp", source, target]).run().code(1);
        assert!(ending.errors.contains(words), "`{words}` is missing in: {}", ending.errors);
        assert!(engine.users_of(&claim.name).is_empty());
    };
    fails(&claim.at("/no/such"), &path("x"), "there is no file");
    fails(&path("no-such"), &claim.at("/"), "can't be read");
    fails(&path("file"), &claim.at("/no/such/"), "there is no directory");
    fails(&path("file"), &claim.at("/no/such"), "there is no directory");
    fails(&path("directory"), &claim.at("/file"), "is a directory, but");
    fails(&claim.at("/file"), &path("no/such"), "there is no directory");
    fails(&path("file"), "fiber-test-no-such-volume:/", "fiber-test-no-such-volume");
}

#[trial]
fn an_interrupted_copy_leaves_nothing(engine: &'static dyn Engine) {
    let claim = TestVolume::new(engine);
    let host = tempfile::tempdir().expect("there is room");
    // Large enough for the copy to be still in progress when the test sees it.
    let path = host.path().join("large");
    let mut file = fs::File::create(&path).expect("there is room");
    let block: Vec<u8> = (0..1 << 20).map(|index: u32| (index % 251) as u8).collect();
    (0..1024).for_each(|_| file.write_all(&block).expect("there is room"));
    drop(file);
    let copying = fiber(engine, &["cp", &path.display().to_string(), &claim.at("/")]).start();
    wait_until("it has begun", || !engine.users_of(&claim.name).is_empty());
    copying.signal(Signal::INT);
    copying.end().code(128 + Signal::INT.as_raw());
    assert!(engine.users_of(&claim.name).is_empty());
}
