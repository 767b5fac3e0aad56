//! Initializers of workers, and pools whose workers fail at the start.

use fiber::Pool;
use fiber_test_support::wait::wait_for;

use super::{sleep_ms, square};

#[test]
fn each_worker_is_initialized_once() {
    fn set(value: u32) {
        // A task function captures nothing, so an initializer stores its result in a static.
        VALUE.store(value, std::sync::atomic::Ordering::SeqCst);
        CALLS.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
    static VALUE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    static CALLS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let read = |_: u32| {
        (
            VALUE.load(std::sync::atomic::Ordering::SeqCst),
            CALLS.load(std::sync::atomic::Ordering::SeqCst),
        )
    };
    let pool = Pool::builder().processes(2).initializer(set, 42).build().unwrap();
    assert_eq!(pool.map(read, 0..20).wait().unwrap(), vec![(42, 1); 20]);
}

#[test]
fn a_failing_initializer_fails_the_pool_with_its_message() {
    fn panics() {
        panic!("no licence")
    }
    let fails = || Err::<(), _>("no licence");
    let builder = Pool::builder;
    for (pool, name) in [
        (builder().initializer(panics, ()), "message::panics`".to_string()),
        (builder().try_initializer(fails, ()), format!("closure@{}:{}}}`", file!(), line!())),
    ] {
        let error =
            pool.processes(2).build().unwrap().map(square, 0..10).wait().unwrap_err().to_string();
        assert!(error.contains("no licence") && error.contains("initializer `"), "{error}");
        assert!(error.contains(&name), "{error}");
    }
}

#[test]
fn a_pool_whose_workers_fail_to_start_gives_the_reason_once() {
    let fails = || Err::<(), _>("no licence");
    let pool = Pool::builder().processes(1).try_initializer(fails, ()).build().unwrap();
    let error = pool.apply(square, 3).wait().unwrap_err().to_string();
    assert_eq!(error.matches("could not be started").count(), 1, "{error}");
    assert!(error.contains("no licence"), "{error}");
}

#[test]
fn a_pool_whose_workers_die_unused_fails_with_their_output() {
    fn doom() {
        std::thread::spawn(|| {
            sleep_ms(10);
            eprintln!("no licence");
            std::process::exit(3);
        });
    }
    let pool = Pool::builder().name("doomed").processes(2).initializer(doom, ()).build().unwrap();
    // The pool may be ready for a moment.
    let error = wait_for("the end of the pool", || match pool.wait_until_ready().wait() {
        Err(error) => Ok(error.to_string()),
        Ok(()) => Err(pool.ready_workers()),
    });
    assert!(error.contains("pool `doomed` failed") && error.contains("in a row"), "{error}");
    assert!(error.contains("exited with code 3") && error.contains("no licence"), "{error}");
    assert_eq!(pool.apply(square, 3).wait().unwrap_err().to_string(), error);
    pool.join().wait().unwrap();
}
