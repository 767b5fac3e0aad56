//! The signals by which people and systems end a command.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What asks this command to end. Once this exists, signals do not end it by themselves any more.
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Interrupts {
    pub(crate) fn listen() -> std::io::Result<Interrupts> {
        Ok(Interrupts {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The exit code that the next one asks for.
    pub(crate) async fn next(&mut self) -> u8 {
        let signal = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hang_up.recv() => SignalKind::hangup(),
        };
        128 + signal.as_raw_value() as u8
    }
}
