//! The choice of a managed actor's host, or of other actors whose process it shares.

use std::sync::Arc;

use actix::Actor;
use fiber_core::{Error, Result};
use fiber_runtime::runtime::{HostRule, Neighbor, Spread};

use super::start::ProcessChoice;
use super::{AsyncManager, ManagerBuilder};
use crate::remote::RemoteAddr;

impl<P> ManagerBuilder<P> {
    /// Starts the actor in the process of another manager of this process, instead of one of its
    /// own.
    ///
    /// The actors share the process and its main thread: one that blocks in a handler delays the
    /// others. Each is supervised by itself. A panic costs one actor, which is restarted as its own
    /// [`restart`](Self::restart), [`intensity`](Self::intensity) and [`backoff`](Self::backoff)
    /// say. The death of the process costs all of them; after its restart each starts again, from
    /// its last snapshot. When the other manager's actor ends for good, or its handle is dropped,
    /// the actors in its process are stopped, too.
    ///
    /// [`pid`](AsyncManager::pid) and [`kill_process`](AsyncManager::kill_process) are those of the
    /// shared process, and so are its resources and output. The last of `within` and
    /// [`group`](Self::group) counts.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// use fiber::AsyncManager;
    ///
    /// let first = AsyncManager::start(Counter, 1).wait()?;
    /// let builder = AsyncManager::builder().name("second").within(&first);
    /// let second = builder.start(Counter, 2).wait()?;
    /// assert_eq!(second.send(Add(1)).wait()?, 3);
    /// assert_eq!(second.pid(), first.pid());
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn within<B: Actor>(mut self, manager: &AsyncManager<B>) -> ManagerBuilder<P> {
        self.process = ProcessChoice::Within(Arc::clone(&manager.inner.place));
        self
    }

    /// Starts the actor in one process with all actors of this process that name the same group.
    ///
    /// The first of them starts the group's process, and its options for processes count: resources,
    /// output, host, and intensity and backoff for restarts of the process. The process ends with
    /// the last actor of the group. Otherwise it is as [`within`](Self::within).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let builder = fiber::AsyncManager::builder().group("counters");
    /// let starting: Vec<_> = (0..100).map(|n| builder.clone().start(Counter, n)).collect();
    /// let counters = starting.into_iter().map(|counter| counter.wait());
    /// let counters = counters.collect::<fiber::Result<Vec<_>>>()?;
    /// assert!(counters.iter().all(|counter| counter.pid() == counters[0].pid()));
    /// assert_eq!(counters[7].send(Add(1)).wait()?, 8);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn group(mut self, name: impl Into<String>) -> ManagerBuilder<P> {
        self.process = ProcessChoice::Group(name.into());
        self
    }

    /// Refuses actors in the process of others, which `method` can't start.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub(crate) fn with_own_process(self, method: &'static str) -> Result<ManagerBuilder<P>> {
        if !matches!(self.process, ProcessChoice::Own) {
            let problem = "it has processes of its own: leave out `within` and `group`";
            return Err(Error::invalid(method, problem));
        }
        Ok(self)
    }

    /// Checks that one place is chosen.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub(super) fn check_process(&self) -> Result<()> {
        if matches!(self.process, ProcessChoice::Within(_)) && !matches!(self.host, HostRule::Any) {
            let problem = "the actor runs where that process is: leave out `within`, or `on_host`, \
                           `beside` and `spread`";
            return Err(Error::invalid("ManagerBuilder::within", problem));
        }
        Ok(())
    }

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
