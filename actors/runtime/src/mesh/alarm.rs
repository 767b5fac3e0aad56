//! Alarms.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use fiber_transport::Received;
use tokio::sync::oneshot;

use super::Mesh;
use super::deadlines::{Answer, Waiter};

/// A future that is ready after some time, on any async runtime and on none.
pub struct Alarm {
    waiter: Option<Waiter>,
    over: oneshot::Receiver<Answer>,
}

impl Alarm {
    /// Returns a future that is ready once `time` has passed from now on. Dropping it cancels the
    /// alarm.
    pub fn after(mesh: &'static Mesh, time: Duration) -> Alarm {
        let (sender, over) = oneshot::channel();
        Alarm { waiter: Some(mesh.deadlines().within(time, sender)), over }
    }
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.over).poll(context).map(drop)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // Takes the deadline off the list.
        if let Some(waiter) = self.waiter.take() {
            waiter.complete(Ok(Received::default()));
        }
    }
}
