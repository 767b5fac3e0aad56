//! Logs of tasks, in programs that install a subscriber before `fiber::init()`.

use fiber_test_support::program::Setup;
use fiber_test_support::trial;

#[trial]
fn what_tasks_log_has_their_context() {
    let ending = Setup::new("logging tasks").run().code(0);
    for index in 0..3 {
        let span = format!(
            "INFO task{{pool=\"speakers\" function=\"programs::scenarios::logs::speak\" \
             index={index} worker=\"worker-1\"}}: "
        );
        let line = ending.out.lines().find(|line| line.ends_with(&format!(": item {index}")));
        assert!(line.is_some_and(|line| line.contains(&span)), "{}", ending.out);
    }
    let outside = ending.out.lines().find(|line| line.ends_with(": outside of tasks")).unwrap();
    assert!(!outside.contains("task{"), "{outside}");
}
