//! Volumes: what outlives a session, and `fiber cp`.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};

use rustix::process::Signal;

use crate::engine::{Claim, Engine, fiber, run};
use crate::wait::wait_until;

crate::tests![
    what_one_run_writes_the_next_one_reads,
    a_volume_is_mounted_where_it_is_wanted,
    files_are_copied_both_ways,
    directories_are_copied_with_all_that_they_have,
    files_are_copied_between_volumes,
    what_can_not_be_copied_is_told_and_leaves_nothing,
    an_interrupted_copy_leaves_nothing,
];

fn what_one_run_writes_the_next_one_reads(engine: &'static dyn Engine) {
    let claim = Claim::new(engine);
    let again = || run(engine, &["-a", "-v", &claim.name], "persistent").run().code(0);
    again().says(&["lines: 1", "this is run 1"]);
    again().says(&["lines: 2", "this is run 1", "this is run 2"]);
    // As in the example that came before this project: programs that know nothing of fiber.
    fiber(engine, &["run", "-a", "-v", &claim.name, "cat", "/persistent/notes.txt"])
        .run()
        .code(0)
        .says(&["this is run 2"]);
}

fn a_volume_is_mounted_where_it_is_wanted(engine: &'static dyn Engine) {
    let (first, second) = (Claim::new(engine), Claim::new(engine));
    let volumes = [&*first.name, &second.at("/elsewhere:ro")];
    // What the shell can do by itself: there is nothing else in the image.
    let line = "echo hello > /persistent/a && read word < /persistent/a && echo $word && ! echo \
                hello > /elsewhere/a";
    let ending =
        fiber(engine, &["run", "-a", "-v", volumes[0], "-v", volumes[1], "bash", "-c", line]).run();
    let ending = ending.code(0).says(&["hello"]);
    let said = if engine.tells_streams_apart() { &ending.errors } else { &ending.out };
    assert!(said.contains("Read-only file system"), "{said}");
}

#[track_caller]
fn copies(engine: &'static dyn Engine, source: &str, target: &str) {
    fiber(engine, &["cp", source, target]).run().code(0);
}

fn files_are_copied_both_ways(engine: &'static dyn Engine) {
    let claim = Claim::new(engine);
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

fn directories_are_copied_with_all_that_they_have(engine: &'static dyn Engine) {
    let claim = Claim::new(engine);
    let host = tempfile::tempdir().expect("there is room");
    let path = |name: &str| host.path().join(name).display().to_string();
    fs::create_dir_all(path("in/deep/er")).expect("there is room");
    fs::write(path("in/deep/er/file"), "content").expect("there is room");
    symlink("deep/er/file", path("in/link")).expect("there is room");
    // As `cp -r` does it: the target itself if there is none, below it if there is.
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

fn files_are_copied_between_volumes(engine: &'static dyn Engine) {
    let (first, second) = (Claim::new(engine), Claim::new(engine));
    let host = tempfile::tempdir().expect("there is room");
    let path = |name: &str| host.path().join(name).display().to_string();
    fs::write(path("a"), "content").expect("there is room");
    copies(engine, &path("a"), &first.at("/"));
    copies(engine, &first.at("/a"), &second.at("/b"));
    copies(engine, &second.at("/b"), &path("back"));
    assert_eq!(fs::read(path("back")).expect("it is there"), b"content");
    assert!(engine.users_of(&first.name).is_empty() && engine.users_of(&second.name).is_empty());
}

fn what_can_not_be_copied_is_told_and_leaves_nothing(engine: &'static dyn Engine) {
    let claim = Claim::new(engine);
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
    fails(&claim.at("/no/such"), &path("x"), "there is nothing at");
    fails(&path("no-such"), &claim.at("/"), "can't be read");
    fails(&path("file"), &claim.at("/no/such/"), "there is no directory");
    fails(&path("file"), &claim.at("/no/such"), "there is no directory");
    fails(&path("directory"), &claim.at("/file"), "is a directory, and");
    fails(&claim.at("/file"), &path("no/such"), "there is no directory");
    fails(&path("file"), "fiber-test-no-such-volume:/", "fiber-test-no-such-volume");
}

fn an_interrupted_copy_leaves_nothing(engine: &'static dyn Engine) {
    let claim = Claim::new(engine);
    let host = tempfile::tempdir().expect("there is room");
    // Large enough not to have arrived before it is seen to be on its way.
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
