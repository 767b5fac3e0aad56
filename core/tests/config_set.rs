//! `Config::set` before and after the first read. The file has one test, because reading the
//! configuration changes the whole process.

use std::panic::catch_unwind;

use fiber_core::Config;

#[test]
fn overrides_apply_in_order_until_the_configuration_is_read_and_then_panic() {
    Config::set(|config| {
        config.processes = 2;
        config.nested = true;
    });
    Config::set(|config| config.processes = 3);
    for _ in 0..2 {
        let config = Config::load().unwrap();
        assert_eq!((config.processes, config.nested), (3, true));
    }

    let panic = catch_unwind(|| Config::set(|config| config.processes = 4)).unwrap_err();
    let message = fiber_core::panics::message(&*panic);
    assert!(message.contains("after fiber had read the configuration"), "{message}");
    assert_eq!(Config::load().unwrap().processes, 3);
}
