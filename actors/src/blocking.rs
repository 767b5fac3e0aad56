//! Futures run to their end on a thread that waits for them.

use std::cell::OnceCell;
use std::future::Future;
use std::pin::Pin;

use fiber_core::BlockOn;

/// Runs the futures of tasks. The runtime is made when a task first needs it.
#[derive(Default)]
pub(crate) struct BlockingRuntime(OnceCell<actix_rt::Runtime>);

impl BlockOn for BlockingRuntime {
    fn block_on(&self, future: Pin<&mut dyn Future<Output = ()>>) {
        let runtime = self.0.get_or_init(|| actix_rt::Runtime::new().expect("the system has room for a runtime"));
        runtime.block_on(future);
    }
}

/// Runs the body of an async `main` in an actix system of the main thread.
pub fn block_on_main<F: Future>(main: F) -> F::Output {
    actix_rt::System::new().block_on(main)
}
