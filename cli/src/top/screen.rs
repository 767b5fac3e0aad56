//! The loop of the screen: looks, keys, drawing.

use std::process::ExitCode;
use std::time::Duration;

use crossterm::event::{Event, EventStream};
use fiber_backends::cluster::SessionHead;
use fiber_core::inspect::Request;
use fiber_core::{ProcessId, Signals};
use futures_util::StreamExt;
use ratatui::DefaultTerminal;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval_at};

use super::app::{App, Effect, Screen};
use super::theme::Theme;
use super::view;
use crate::inspect::sessions::{Observed, Sessions};
use crate::killed_by;

/// A report of the task that asks the heads.
enum Update {
    Looked(anyhow::Result<Vec<Observed>>),
    Stack(ProcessId, String),
}

/// Shows sessions until a person leaves, or the one that is watched ends.
pub(crate) async fn show(
    sessions: Sessions,
    observed: Vec<Observed>,
    session: Option<String>,
    interval: Duration,
) -> anyhow::Result<ExitCode> {
    let mut app = App::new(Theme::of_terminal(), session);
    app.update(observed);
    app.open_only();
    let signals = Signals::listen()?;
    // It also restores the terminal when this program panics.
    let mut terminal = ratatui::try_init()?;
    let left = run(&mut terminal, &mut app, sessions, interval, signals).await;
    ratatui::restore();
    let (code, message) = left?;
    message.iter().for_each(|message| say!("{message}"));
    Ok(code)
}

/// Returns the exit code, and what to say if the session has ended.
async fn run(
    terminal: &mut DefaultTerminal,
    app: &mut App,
    sessions: Sessions,
    interval: Duration,
    mut signals: Signals,
) -> anyhow::Result<(ExitCode, Option<String>)> {
    let wanted = (ExitCode::SUCCESS, None);
    let (asked, questions) = mpsc::unbounded_channel();
    let (answers, mut updates) = mpsc::unbounded_channel();
    tokio::task::spawn_local(ask(sessions, interval, questions, answers));
    let mut events = EventStream::new();
    loop {
        terminal.draw(|frame| view::draw(frame, app))?;
        tokio::select! {
            update = updates.recv() => match update {
                Some(Update::Looked(observed)) => {
                    if let Some(message) = app.update(observed?) {
                        return Ok((ExitCode::SUCCESS, Some(message)));
                    }
                }
                Some(Update::Stack(process, text)) => {
                    if app.screen == Screen::Stack(process) {
                        app.stack = Some(text);
                    }
                }
                None => return Ok(wanted),
            },
            event = events.next() => match event {
                Some(Ok(Event::Key(key))) => match app.press(key) {
                    Effect::None => {}
                    Effect::Leave => return Ok(wanted),
                    Effect::Stack(head, process) => drop(asked.send((head, process))),
                },
                // A new size is drawn at once.
                Some(Ok(_)) => {}
                // The terminal is gone.
                Some(Err(_)) | None => return Ok(wanted),
            },
            signal = signals.next() => return Ok((ExitCode::from(killed_by(signal)), None)),
        }
    }
}

/// Asks all heads at each interval, and single ones for stacks.
async fn ask(
    mut sessions: Sessions,
    interval: Duration,
    mut questions: mpsc::UnboundedReceiver<(SessionHead, ProcessId)>,
    answers: mpsc::UnboundedSender<Update>,
) {
    let mut ticks = interval_at(tokio::time::Instant::now() + interval, interval);
    // A look that took long is no reason for several at once.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                if answers.send(Update::Looked(sessions.look().await)).is_err() {
                    return;
                }
            }
            question = questions.recv() => {
                let Some((head, process)) = question else { return };
                let (opened, answers) = (sessions.take(&head).await, answers.clone());
                tokio::task::spawn_local(async move {
                    let request = Request::Stack { process, all: false };
                    let text = match opened {
                        Ok(mut inspector) => inspector.request::<String>(&request).await,
                        Err(problem) => Err(problem),
                    };
                    let text = text.unwrap_or_else(|problem| problem.to_string());
                    let _ = answers.send(Update::Stack(process, text));
                });
            }
        }
    }
}
