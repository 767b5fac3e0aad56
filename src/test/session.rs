//! Sessions within the process of a test.

use std::sync::atomic::{AtomicU64, Ordering};

use fiber_runtime::blocking::block_on_main;
use fiber_runtime::runtime::simulation::Session;

/// The seed of the next session, from which its ids and its key come.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Runs a program in a session of its own, whose processes are threads of this one.
///
/// In a debug build, a process then takes 2 ms from its start to its end, and not 6 ms. Each session
/// has its own names, groups, topics and statistics. Fiber itself works as ever: messages are
/// encoded, pools have workers, managed actors are restarted. The session has the default
/// configuration. It ends with the program.
///
/// What the operating system gives to processes is shared: statics, the working folder, variables
/// of the environment, `std::process::id()`, limits. `std::process::exit` and `abort` end the test.
/// A process that is killed is dead for the session, while its thread runs on to the end of its
/// task. Tests of such things need real processes, with [`test_harness!`](crate::test_harness).
///
/// # Panics
/// If the program does, on a thread that runs async code, and if there is no room for a thread.
///
/// # Examples
/// ```
/// use fiber::prelude::*;
///
/// // In a function with `#[test]`:
/// fiber::test::session(async || {
///     let pool = Pool::new(4)?;
///     assert_eq!(pool.map(|x: u64| x * x, 0..4).await?, [0, 1, 4, 9]);
///     fiber::Result::<()>::Ok(())
/// })?;
/// # Ok::<(), fiber::Error>(())
/// ```
#[track_caller]
pub fn session<T>(program: impl AsyncFnOnce() -> T) -> T {
    assert!(
        tokio::runtime::Handle::try_current().is_err(),
        "`fiber::test::session` blocks its thread: call it in a plain `fn`, not in async code"
    );
    let session = Session::start(NEXT.fetch_add(1, Ordering::Relaxed));
    let session = session.unwrap_or_else(|error| panic!("the session has not started: {error}"));
    let session = EndOnDrop(Some(session));
    let _entered = session.0.as_ref().map(Session::enter);
    block_on_main(program())
}

/// Ends the session, also if its program panics.
struct EndOnDrop(Option<Session>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.take().map(Session::end);
    }
}
