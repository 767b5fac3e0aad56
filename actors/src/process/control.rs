//! A process as a child of a supervisor.

use fiber_core::ExitReason;
use tokio::sync::mpsc;

use crate::runtime::Command;
use crate::supervisor::Control;

/// Has a process end when its work is done. Dropped, it ends it at once.
pub(crate) struct ProcessControl(pub(crate) mpsc::UnboundedSender<Command>);

impl Control for ProcessControl {
    fn shutdown(&mut self) {
        // An attendant that is gone has seen the end of its process.
        let _ = self.0.send(Command::Shutdown);
    }

    fn kill(&mut self, reason: ExitReason) {
        let _ = self.0.send(Command::Kill(reason));
    }
}

impl Drop for ProcessControl {
    fn drop(&mut self) {
        let _ = self.0.send(Command::Kill(ExitReason::Shutdown));
    }
}
