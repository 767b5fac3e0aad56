//! A backend outside of fiber, in a test binary whose children live before its `main`.

#[path = "../examples/launcher/backend.rs"]
mod backend;

fiber::test_harness!();

fn niceness() -> i32 {
    rustix::process::nice(0).expect("it is not changed")
}

/// Returns how nice a worker is, and how nice its own worker is.
fn niceness_of_two_levels() -> (i32, i32) {
    let pool = fiber::Pool::new(1).expect("the backend is known to children, too");
    (niceness(), pool.apply(niceness, ()).wait().expect("its worker runs it"))
}

#[test]
fn children_of_a_test_find_the_backend() {
    fiber::init_with(|config| {
        config.backend = "launcher".into();
        config
            .edit(|launcher: &mut backend::LauncherSection| launcher.command = "nice -n 3".into());
    });
    let pool = fiber::Pool::new(1).expect("the configuration is right");
    let found = pool.apply(niceness_of_two_levels, ()).wait().expect("a worker runs it");
    assert_eq!(found, (niceness() + 3, niceness() + 6));
}
