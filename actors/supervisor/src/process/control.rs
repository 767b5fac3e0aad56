//! How supervisors end processes.

use std::cell::Cell;
use std::rc::Rc;

use fiber_core::ExitReason;
use tokio::sync::mpsc;

use crate::supervisor::{Control, Running};
use fiber_runtime::runtime::{ProcessCommand, StartedChild};

/// Waits until a child of a supervisor is ready.
///
/// # Errors
/// Why it has ended before.
pub async fn running(
    child: StartedChild,
    control: impl Control + 'static,
) -> Result<Running, ExitReason> {
    let (place, exited) = child.ready().await?;
    Ok(Running::new(control, exited).place(place))
}

/// Asks a process to end when its work is done. If it is dropped, it kills the process.
#[derive(Debug)]
pub struct ProcessControl(mpsc::UnboundedSender<ProcessCommand>);

impl ProcessControl {
    /// Makes a control that sends these commands.
    pub fn new(commands: mpsc::UnboundedSender<ProcessCommand>) -> ProcessControl {
        ProcessControl(commands)
    }
}

impl Control for ProcessControl {
    fn shutdown(&mut self) {
        // A process that has ended receives no commands.
        let _ = self.0.send(ProcessCommand::Shutdown);
    }

    fn kill(&mut self, reason: ExitReason) {
        let _ = self.0.send(ProcessCommand::Kill(reason));
    }
}

impl Drop for ProcessControl {
    fn drop(&mut self) {
        self.kill(ExitReason::Shutdown);
    }
}

/// Stops a process by SIGTERM, as its function may never return. If it is dropped, it kills the
/// process.
pub(super) struct SignalControl {
    pub(super) control: ProcessControl,
    /// An end by SIGTERM is then no failure.
    pub(super) stop_requested: Rc<Cell<bool>>,
}

impl Control for SignalControl {
    fn shutdown(&mut self) {
        self.stop_requested.set(true);
        let _ = self.control.0.send(ProcessCommand::Terminate);
    }

    fn kill(&mut self, reason: ExitReason) {
        self.control.kill(reason);
    }
}
