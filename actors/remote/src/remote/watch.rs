//! Watching an actor of another process.

use actix::Recipient;
use tokio::sync::oneshot;

use super::untyped::UntypedAddr;
use fiber_runtime::mesh::{Ends, Query};
use fiber_runtime::reply::Reply;
use fiber_runtime::runtime::Runtime;
use fiber_supervisor::supervisor::Down;

impl UntypedAddr {
    /// Sends `recipient` one message for each end of the actor, from now on.
    pub(crate) fn watch(&self, recipient: Recipient<Down>) -> Reply<()> {
        let addr = self.clone();
        let (sender, watching) = oneshot::channel();
        let runtime = addr.runtime();
        if let Ok(runtime) = &runtime {
            let runtime = *runtime;
            runtime.spawn(move || async move { watch(runtime, &addr, &recipient, sender).await });
        }
        Reply::named(format!("the watch of actor `{}`", self.target.name), async move {
            runtime?;
            // The sender is dropped if the recipient has been sent the actor's end already.
            let _ = watching.await;
            Ok(())
        })
    }
}

async fn watch(
    runtime: &'static Runtime,
    addr: &UntypedAddr,
    recipient: &Recipient<Down>,
    watching: oneshot::Sender<()>,
) {
    let target = &*addr.target;
    let (mesh, actor) = (runtime.mesh(), target.actor);
    let index = addr.index.map(|index| index as usize);
    let down = |reason| recipient.do_send(Down::new(target.name.to_string(), index, reason));
    let first = match mesh.query::<u64>(&target.home, Query::EndCount { actor }).await {
        Ok(first) => first,
        Err(reason) => return down(reason),
    };
    let _ = watching.send(());
    let mut after = first;
    loop {
        let query = Query::Ends { actor, after };
        let Ends { count, reasons, gone } = match mesh.query(&target.home, query).await {
            Ok(ends) => ends,
            Err(reason) => return down(reason),
        };
        after = count;
        reasons.into_iter().for_each(&down);
        if let Some(reason) = gone {
            // If it began to watch after the last end, it hears of that.
            if after == first {
                down(reason);
            }
            return;
        }
        if !recipient.connected() {
            return;
        }
    }
}
