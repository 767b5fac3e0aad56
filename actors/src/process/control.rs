//! A process as a child of a supervisor.

use fiber_core::ExitReason;
use tokio::sync::mpsc;

use crate::runtime::ProcessCommand;
use crate::supervisor::Control;

/// Has a process end when its work is done. Dropped, it ends it at once.
pub(crate) struct ProcessControl(pub(crate) mpsc::UnboundedSender<ProcessCommand>);

impl Control for ProcessControl {
    fn shutdown(&mut self) {
        // An attendant that is gone has seen the end of its process.
        let _ = self.0.send(ProcessCommand::Shutdown);
    }

    fn kill(&mut self, reason: ExitReason) {
        let _ = self.0.send(ProcessCommand::Kill(reason));
    }
}

impl Drop for ProcessControl {
    fn drop(&mut self) {
        let _ = self.0.send(ProcessCommand::Kill(ExitReason::Shutdown));
    }
}
