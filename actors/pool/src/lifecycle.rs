//! The number of a pool's workers, and the pool's end.

use std::sync::Arc;

use fiber_core::{Error, Meta, PoolEndReason, forks};
use fiber_runtime::runtime::Runtime;
use tokio::sync::oneshot;

use super::Pool;
use super::controller::ControllerRequest;
use super::pool::kill;
use fiber_runtime::reply::Reply;

impl Pool {
    /// Waits until all workers are ready. Starts them if no call has.
    ///
    /// While some workers are ready, this does not wait for others that the cluster has no room
    /// for, that wait for an engine that is away, or whose starts fail for two seconds. The pool
    /// keeps trying to start them.
    /// [`ready_workers`](Pool::ready_workers) returns how many workers are ready.
    ///
    /// # Errors
    /// [`Error::PoolEnded`], with the reason if no worker can be started.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// pool.wait_until_ready().wait()?;
    /// assert_eq!(pool.ready_workers(), 2);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn wait_until_ready(&self) -> Reply<()> {
        if let Err(error) = forks::check() {
            return Reply::failed(error);
        }
        let state = Arc::clone(self.state());
        state.ensure_started(Meta::new());
        Reply::new(async move { state.when_ready(|workers| workers.ready >= workers.wanted).await })
    }

    /// Returns how many workers are ready for tasks: they have started, and their initializers have
    /// returned. The example of [`wait_until_ready`](Pool::wait_until_ready) shows it.
    ///
    /// It falls when a worker dies, until its replacement is ready, and is 0 when the pool has
    /// ended.
    pub fn ready_workers(&self) -> usize {
        // In a fork, the lock may be held for good.
        if forks::is_forked() { 0 } else { self.state().life.lock().readiness().ready }
    }

    /// Changes the number of worker processes to `processes`, from 1 to 100,000, while calls
    /// run.
    ///
    /// Superfluous workers finish their pending tasks before they stop. The reply is ready when
    /// exactly `processes` workers are ready, with the exceptions of
    /// [`wait_until_ready`](Pool::wait_until_ready). The change happens even if the reply is
    /// dropped.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another number; [`Error::PoolEnded`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(1)?;
    /// pool.scale(2).wait()?;
    /// assert_eq!(pool.ready_workers(), 2);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn scale(&self, processes: usize) -> Reply<()> {
        let state = Arc::clone(self.state());
        if processes == 0 {
            let problem = "a pool needs at least 1 process: use `stop` or drop it to end it";
            return Reply::new(async move { Err(Error::invalid("Pool::scale", problem)) });
        }
        let checked = state.check_owned("Pool::scale");
        if let Err(error) =
            checked.and_then(|()| Runtime::check_processes("Pool::scale", processes))
        {
            return Reply::failed(error);
        }
        state.ensure_started(Meta::new());
        state.with_life(|life, effects| life.scale(processes, effects));
        Reply::new(async move {
            state
                .when_ready(|workers| workers.wanted != processes || workers.ready == processes)
                .await
        })
    }

    /// Refuses new calls. Calls in progress continue, and the workers stop after the last.
    ///
    /// Returns at once. [`join`](Pool::join) waits for the end. A call after this fails with
    /// [`Error::PoolEnded`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(1)?;
    /// let before = pool.apply(|| 42, ());
    /// pool.close();
    /// assert!(matches!(pool.apply(|| 43, ()).wait(), Err(fiber::Error::PoolEnded { .. })));
    /// assert_eq!(before.wait()?, 42);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn close(&self) {
        let state = self.state();
        match state.check_owned("Pool::close") {
            Ok(()) => {}
            // A lock may be held for good, also of what would log it.
            Err(Error::Forked) => return,
            Err(error) => return tracing::warn!("{error}"),
        }
        state.with_life(|life, _| life.close());
    }

    /// Waits until the pool has ended and all its workers with it.
    ///
    /// This does not end the pool: [`close`](Pool::close), [`stop`](Pool::stop) and
    /// [`kill`](Pool::kill) do. A pool also ends when it fails to start any worker. The reply has
    /// no error for that: the calls have it.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(1)?;
    /// let answer = pool.apply(|| 42, ());
    /// pool.close();
    /// pool.join().wait()?;
    /// assert_eq!(answer.wait()?, 42);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn join(&self) -> Reply<()> {
        if let Err(error) = self.state().check_owned("Pool::join") {
            return Reply::new(async { Err(error) });
        }
        let (done, ended) = oneshot::channel();
        self.state().control(ControllerRequest::Join(done));
        Reply::new(async move {
            // If the controller is gone, so are the workers.
            let _ = ended.await;
            Ok(())
        })
    }

    /// Stops the pool: refuses new calls, and waits until all calls are done and all workers have
    /// ended.
    ///
    /// This is [`close`](Pool::close) followed by [`join`](Pool::join). The pool stops even if the
    /// reply is dropped. A call of [`imap`](Pool::imap) whose results are not taken can hold up the
    /// stop for good, when its [buffer](Pool::buffer) is full: take the results, or drop the
    /// handle.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(1)?;
    /// let sum = pool.apply(|a: u32, b: u32| a + b, (1, 2));
    /// pool.stop().wait()?;
    /// assert_eq!(pool.ready_workers(), 0);
    /// assert_eq!(sum.wait()?, 3);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn stop(&self) -> Reply<()> {
        self.close();
        self.join()
    }

    /// Kills the workers at once (SIGKILL). All calls fail with [`Error::PoolEnded`].
    ///
    /// Returns at once. [`join`](Pool::join) waits until all workers have ended.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use std::time::Duration;
    ///
    /// let pool = fiber::Pool::new(1)?;
    /// let call = pool.apply(|| std::thread::sleep(Duration::from_secs(60)), ());
    /// pool.kill();
    /// assert!(matches!(call.wait(), Err(fiber::Error::PoolEnded { .. })));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn kill(&self) {
        match self.state().check_owned("Pool::kill") {
            Ok(()) => kill(self.state(), PoolEndReason::Killed),
            Err(Error::Forked) => {}
            Err(error) => tracing::warn!("{error}"),
        }
    }
}
