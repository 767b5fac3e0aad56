//! The hosts of actors beside which other processes are to run.

use std::sync::Arc;

use fiber_backends::{Job, JobPlace, JobState};
use tokio::time::timeout;

use super::rule::{HostRule, Neighbor};
use super::source::is_remote;
use crate::mesh::{ActorId, ActorLocation};
use crate::runtime::Runtime;
use crate::runtime::parent_info::ChildPlace;

impl Runtime {
    /// Returns the rule for a process that starts now: a host that is known by its name, in place
    /// of an actor. `uses_hosts` says whether its group has hosts.
    ///
    /// # Errors
    /// No host fits, for this reason.
    pub(super) async fn resolve(
        &'static self,
        rule: HostRule,
        uses_hosts: bool,
    ) -> Result<HostRule, String> {
        match rule {
            HostRule::Any | HostRule::Spread(_) => Ok(rule),
            HostRule::Named(name) if self.place != ChildPlace::Alone => Err(format!(
                "host `{name}` can't be chosen here: this process is in a host itself, and what it \
                 starts runs beside it. Start the actor from the process that has the hosts"
            )),
            HostRule::Named(name) if !uses_hosts && !self.hosts.have_been() && !self.is_head() => {
                Err(format!(
                    "there is no host `{name}` for what this process starts: choose it where the \
                     program's first process starts the actor"
                ))
            }
            HostRule::Named(name) if !uses_hosts && !self.hosts.have_been() => Err(format!(
                "there is no host `{name}`, because this process has no hosts: set \
                 `processes_per_job` (`FIBER_PROCESSES_PER_JOB`) to 2 or more, or use a backend \
                 whose machines are hosts: slurm, gridengine or ssh"
            )),
            HostRule::Named(_) => Ok(rule),
            HostRule::Beside(neighbor) => {
                let limit = self.config().start_timeout;
                let name = Arc::clone(&neighbor.name);
                let found = timeout(limit, self.host_beside(neighbor)).await;
                let late = |_| {
                    format!(
                        "it is to start beside `{name}`, whose process has not started within \
                         {limit:?} (`start_timeout` sets the limit)"
                    )
                };
                let host = found.map_err(late)??;
                Ok(host.map_or(HostRule::Any, HostRule::Named))
            }
        }
    }

    /// Returns the host in which an actor's process runs, once it runs; `None` if all processes
    /// that this one starts are beside it.
    async fn host_beside(&'static self, neighbor: Neighbor) -> Result<Option<Arc<str>>, String> {
        let Neighbor { session, name, home, actor, owned } = neighbor;
        if session != self.session() {
            return Err(format!("`{name}` is an actor of another session"));
        }
        let is_here = home.id == self.id();
        if self.place != ChildPlace::Alone {
            return if is_here {
                Ok(None)
            } else {
                Err(format!(
                    "it can't start beside `{name}`: this process is in a host itself, and what it \
                     starts runs beside it. Start it from the process that has the hosts"
                ))
            };
        }
        if is_here && owned {
            return self.host_of_child(&name, actor).await;
        }
        let child = self.children.above(home.id).filter(|_| !is_here);
        match child.map(|job| job.place()) {
            Some(JobPlace::Hosted { host, .. }) => Ok(Some(host.into())),
            None if !is_here && !self.is_head() => Err(format!(
                "it can't start beside `{name}`, whose process is neither this one nor below it: \
                 start it from one that is"
            )),
            _ => self.without_host(&name).await,
        }
    }

    /// Returns the host of a managed actor of this process, once it runs.
    async fn host_of_child(
        &'static self,
        name: &str,
        actor: ActorId,
    ) -> Result<Option<Arc<str>>, String> {
        let mut after = 0;
        loop {
            let (process, incarnation) = match self.registry().locate(actor, after).await {
                ActorLocation::At { process, incarnation } => (process, incarnation),
                ActorLocation::Gone(reason) => {
                    return Err(format!(
                        "it is to start beside `{name}`, which has ended: {reason}"
                    ));
                }
            };
            let job = self.children.above(process.id);
            match job.filter(|job| !has_ended(job)).map(|job| job.place()) {
                Some(JobPlace::Hosted { host, .. }) if self.hosts.is_open(&host) => {
                    return Ok(Some(host.into()));
                }
                // It ends with its host, or its end is about to be noted. Its successor may be
                // elsewhere.
                Some(JobPlace::Hosted { .. }) | None => after = incarnation,
                Some(_) => return self.without_host(name).await,
            }
        }
    }

    /// Answers for an actor whose process is in no host: one machine is the same for all.
    async fn without_host(&'static self, name: &str) -> Result<Option<Arc<str>>, String> {
        let is_remote = is_remote(self).await.map_err(|exit| exit.reason.to_string())?;
        if is_remote {
            return Err(format!(
                "it can't start beside `{name}`, whose process is in no host that this process has \
                 started: set `processes_per_job` to 2 or more, or choose an actor whose process \
                 is in a host"
            ));
        }
        Ok(None)
    }
}

fn has_ended(job: &Arc<dyn Job>) -> bool {
    matches!(*job.states().borrow(), JobState::Ended(_))
}
