//! The choice of a managed actor's host.

use std::sync::Arc;

use actix::Actor;
use fiber_core::{Error, Result};
use fiber_runtime::runtime::{HostRule, Neighbor, Spread};

use super::ManagerBuilder;
use crate::remote::RemoteAddr;

impl<P> ManagerBuilder<P> {
    /// Starts the actor's process in the host of this name, also after a restart.
    ///
    /// A host is a job of several processes (`processes_per_job`): `pool-1/host-2`, as `fiber ps`
    /// and errors name it, whichever pool or ring has it. Where each machine has one host (Slurm,
    /// Grid Engine, ssh), it is the machine: `n1` or `host-n1`. The host of a machine starts if it
    /// does not run.
    ///
    /// While the host is full, the process waits for a place, for `schedule_timeout` of the
    /// [configuration](fiber_core::Config) at most. The start fails if there is no such host, if it
    /// has ended, if one of its places is for less than the process requests, and if this process
    /// has no hosts; the error says which hosts there are. A restart fails for the same reasons,
    /// and counts as any restart of its supervisor.
    ///
    /// The last of `on_host` and [`beside`](ManagerBuilder::beside) counts.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// use fiber::{AsyncManager, Pool};
    ///
    /// let pool = Pool::builder().name("crawl").processes(3).processes_per_job(2).build()?;
    /// pool.wait_until_ready().wait()?;
    /// // It has one worker, and a place for another process.
    /// let cache = AsyncManager::builder().on_host("crawl/host-2").start(Counter, 0).wait()?;
    /// assert_eq!(cache.send(Add(1)).wait()?, 1);
    /// let error = AsyncManager::builder().on_host("n7").start(Counter, 0).wait().unwrap_err();
    /// assert!(error.to_string().contains("there is no host `n7`"));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn on_host(mut self, name: impl Into<String>) -> ManagerBuilder<P> {
        let name: String = name.into();
        self.host = HostRule::Named(name.into());
        self
    }

    /// Starts the actor's process in the host in which another actor's process runs, so that both
    /// share memory and need no network. After a restart, it is the host in which that process runs
    /// then.
    ///
    /// The other is an actor of this process, or of one below it. The start waits until that
    /// actor's process runs, for `start_timeout` of the [configuration](fiber_core::Config) at
    /// most, and then for a place in its host, as [`on_host`](ManagerBuilder::on_host). It fails if
    /// the other actor has ended, or if its process is in no host and may be on another machine.
    /// Processes of the backend `local` are always beside each other.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// use fiber::AsyncManager;
    ///
    /// let store = AsyncManager::start(Counter, 0).wait()?;
    /// let index = AsyncManager::builder().beside(&store).start(Counter, 0).wait()?;
    /// assert_eq!(index.send(Add(1)).wait()?, 1);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn beside<B: Actor>(mut self, addr: &RemoteAddr<B>) -> ManagerBuilder<P> {
        let target = &*addr.untyped.target;
        self.host = HostRule::Beside(Neighbor {
            session: target.session,
            name: Arc::clone(&target.name),
            home: target.home.clone(),
            actor: target.actor,
            owned: target.owned,
        });
        self
    }

    /// Spreads the process over hosts, with the others of the set.
    ///
    /// # Errors
    /// A host has been chosen.
    pub(crate) fn spread(mut self, spread: Arc<Spread>) -> Result<ManagerBuilder<P>> {
        if !matches!(self.host, HostRule::Any) {
            let problem = "processes that are on one host or beside an actor can't be spread: leave \
                           out `spread`, or `on_host` and `beside`";
            return Err(Error::invalid("spread", problem));
        }
        self.host = HostRule::Spread(spread);
        Ok(self)
    }
}
