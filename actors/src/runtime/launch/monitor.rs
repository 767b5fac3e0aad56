//! A child process at work, until its end.

#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Buf;
use fiber_backends::JobState;
use fiber_core::{Exit, ExitReason};
use fiber_transport::Received;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{JobGuard, Launched, MAX_LAG};
use crate::endpoint::{CONTROL, HeartbeatMonitor, MAIN, MESH, SPANS};
use crate::runtime::Runtime;
use crate::runtime::child_exit::ChildExit;
use crate::runtime::hosts::is_relayed_control;
use crate::runtime::protocol::ControlMessage;
use crate::runtime::telemetry;

/// Time limit for the end of a killed process; after it, the parent goes on without waiting.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// A command to a child process.
pub(crate) enum ProcessCommand {
    /// Asks it to end when its work is done.
    Shutdown,
    /// Sends SIGTERM.
    Terminate,
    /// Kills it; its exit has this reason.
    Kill(ExitReason),
}

/// Monitors a child until its process has ended and all its messages have been received.
///
/// Passes messages of the child's main to `receive`, and executes `commands`.
pub(crate) async fn monitor(
    runtime: &'static Runtime,
    launched: Launched,
    commands: mpsc::UnboundedReceiver<ProcessCommand>,
    receive: impl FnMut(Received),
) -> Exit {
    monitor_with(KILL_TIMEOUT, runtime, launched, commands, receive).await
}

/// As [`monitor`], with another time limit for the end of a killed process.
async fn monitor_with(
    kill_timeout: Duration,
    runtime: &'static Runtime,
    launched: Launched,
    mut commands: mpsc::UnboundedReceiver<ProcessCommand>,
    mut receive: impl FnMut(Received),
) -> Exit {
    let Launched { mut connection, job_guard, mut peer, host, is_host, .. } = launched;
    let (is_failing, is_host_failing) = (launched.is_failing, launched.is_host_failing);
    let mut states = job_guard.job.states();
    let mut receive = |mut message: Received| match message.first() {
        Some(&MAIN) => {
            message.bytes.advance(1);
            receive(message);
        }
        Some(&MESH) => peer.receive(message),
        Some(&SPANS) => telemetry::receive(message.bytes.slice(1..)),
        _ => {}
    };
    let mut heartbeats = HeartbeatMonitor::new(&runtime.endpoint.config);
    if host.is_some() {
        heartbeats = heartbeats.after_host();
    }
    // Why this process has killed the child, if it has.
    let mut verdict = None;
    let mut killed: Option<Instant> = None;
    let mut commands_open = true;

    let exit = loop {
        tokio::select! {
            biased;
            message = connection.next() => match message {
                Some(Ok(message)) => {
                    heartbeats.received();
                    if message.first() == Some(&CONTROL) {
                        connection.allow_sleep();
                        if let Some(message) = ControlMessage::read(&message) {
                            runtime.children.receive(job_guard.id, message);
                        }
                        continue;
                    }
                    if is_host && is_relayed_control(&message) {
                        connection.allow_sleep();
                    }
                    receive(message);
                }
                end => {
                    is_failing.store(true, Ordering::Release);
                    let problem = match end {
                        Some(Err(error)) => error.to_string(),
                        _ => "it was closed by the other side".to_string(),
                    };
                    connection.link.close();
                    let end = timeout(job_guard.max_lag, ended(&mut states)).await;
                    match end {
                        Ok(exit) if ChildExit::of(&exit.reason) != Some(ChildExit::LinkLost) => {
                            break exit;
                        }
                        _ => drop(verdict.get_or_insert(ExitReason::LinkLost(problem))),
                    }
                    job_guard.job.kill();
                    break timeout(kill_timeout, ended(&mut states))
                        .await
                        .unwrap_or_else(|_| unconfirmed(&job_guard));
                }
            },
            exit = ended(&mut states) => {
                // Messages from before the end count. Heartbeats don't: the process of a deleted
                // pod may still run.
                let mut quiet = Box::pin(sleep(MAX_LAG));
                loop {
                    tokio::select! {
                        biased;
                        message = connection.next() => match message {
                            Some(Ok(message)) => {
                                if message.first() != Some(&CONTROL) {
                                    quiet.as_mut().reset(Instant::now() + MAX_LAG);
                                }
                                receive(message);
                            }
                            _ => break,
                        },
                        () = &mut quiet => break,
                    }
                }
                break exit;
            }
            command = commands.recv(), if commands_open => match command {
                Some(ProcessCommand::Shutdown) => {
                    let _ = connection.link.send(ControlMessage::Shutdown.message());
                }
                Some(ProcessCommand::Terminate) => job_guard.job.terminate(),
                Some(ProcessCommand::Kill(reason)) => {
                    is_failing.store(true, Ordering::Release);
                    verdict.get_or_insert(reason);
                    if runtime.listening.serves_remote_children() {
                        let _ = connection.link.send(ControlMessage::Kill.message());
                    }
                    job_guard.job.kill();
                    killed.get_or_insert_with(Instant::now);
                }
                None => commands_open = false,
            },
            () = heartbeats.lost(), if verdict.is_none() => {
                if is_host_failing.as_ref().is_some_and(|failing| failing.load(Ordering::Acquire)) {
                    // The end of its host comes, and says why.
                    heartbeats.received();
                    continue;
                }
                is_failing.store(true, Ordering::Release);
                verdict =
                    Some(ExitReason::HeartbeatLost(runtime.endpoint.config.heartbeat_timeout));
                job_guard.job.kill();
                killed.get_or_insert_with(Instant::now);
            }
            () = sleep_until(killed.unwrap_or_else(Instant::now) + kill_timeout),
                if killed.is_some() =>
            {
                break unconfirmed(&job_guard);
            }
        }
    };
    connection.link.close();
    let exit = explain_end(verdict, exit);
    peer.lost(&exit.reason);
    exit
}

/// Waits for the end of a job.
pub(in crate::runtime) async fn ended(states: &mut watch::Receiver<JobState>) -> Exit {
    let state = states.wait_for(|state| matches!(state, JobState::Ended(_))).await;
    match state.as_deref() {
        Ok(JobState::Ended(exit)) => exit.clone(),
        _ => Exit::new(ExitReason::LinkLost("its backend lost track of it".into()), Vec::new()),
    }
}

/// Chooses the reason of an exit: the verdict of this process, the cluster's reason if it explains
/// why the child fell silent, or the exit itself.
pub(super) fn explain_end(verdict: Option<ExitReason>, exit: Exit) -> Exit {
    let reason = match (verdict, exit.reason) {
        (
            Some(ExitReason::LinkLost(_) | ExitReason::HeartbeatLost(_)),
            reason @ (ExitReason::Evicted(_)
            | ExitReason::Preempted(_)
            | ExitReason::Cancelled(_)
            | ExitReason::OutOfMemory),
        ) => reason,
        (None, reason) if ChildExit::of(&reason) == Some(ChildExit::LinkLost) => {
            ExitReason::LinkLost("its process found it closed".into())
        }
        (verdict, reason) => verdict.unwrap_or(reason),
    };
    Exit::new(reason, exit.tail)
}

/// Returns the exit of a killed process whose end the backend does not confirm. Its successor does
/// not wait for it; the backend goes on trying to end it.
fn unconfirmed(job_guard: &JobGuard) -> Exit {
    tracing::error!(
        "{} was killed, but its end is not confirmed: going on without it",
        job_guard.job.place()
    );
    Exit::new(ExitReason::Signal(9), Vec::new())
}
