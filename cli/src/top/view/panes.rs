//! The panes with tables: pools, tasks, functions, actors, processes, events.

use fiber_core::stats::{EventKind, PoolPhase, PoolStats, ProcessState, SessionStats};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use super::super::app::{App, Pane};
use super::super::format::{age, bytes, count, percent, span, waiting, whole};
use super::super::rows;
use super::columns::{Cell, Column, Columns};
use super::table::Table;
use super::text::{fit, last};
use super::{marked, title};

/// Draws a pane with lines below a head.
fn table(
    frame: &mut Frame,
    area: Rect,
    app: &App,
    (pane, name): (Pane, &str),
    head: Option<String>,
    lines: Vec<Line>,
) {
    let focused = app.pane == pane;
    // The selected pool counts while other panes have the focus, too.
    let mark = match pane {
        Pane::Pools if !focused => app.theme.bold(),
        _ => marked(true, focused, app),
    };
    let none = lines.is_empty().then(|| Line::styled("none", app.theme.dim()));
    let table = Table {
        title: title(app, pane, name, lines.len()),
        focused,
        head,
        lines,
        selected: (app.cursor(pane), mark),
        notes: none.into_iter().collect(),
    };
    table.draw(frame, area, app);
}

pub(super) fn pools(frame: &mut Frame, area: Rect, app: &App, stats: &SessionStats) {
    let columns = Columns::fitting(
        inner_width(area),
        &[
            Column::text("POOL", 8, 40),
            Column::figure("WORKERS", 9, 0),
            Column::figure("IDLE", 5, 3),
            Column::figure("TASKS/S", 7, 1),
            Column::figure("WAITING", 8, 0),
            Column::figure("PENDING", 8, 2),
            Column::figure("DONE", 8, 0),
            Column::figure("FAILED", 7, 0),
            Column::figure("DEATHS", 6, 0),
        ],
    );
    let line = |pool: &PoolStats| {
        let name = match pool.phase {
            PoolPhase::Open => pool.name.clone(),
            PoolPhase::Closed => format!("{} (closed)", pool.name),
            _ => format!("{} (ended)", pool.name),
        };
        let tasks = &pool.tasks;
        let failed = tasks.failed + tasks.abandoned;
        let bad = |number: u64| if number > 0 { app.theme.bad() } else { Style::new() };
        columns.line(vec![
            Cell::new(name),
            Cell::new(format!("{}/{}", pool.ready, pool.wanted)),
            Cell::new(pool.idle.to_string()),
            Cell::new(count(pool.rate)),
            Cell::new(waiting(tasks)),
            Cell::new(whole(tasks.pending)),
            Cell::new(whole(tasks.done)),
            Cell::new(whole(failed)).style(bad(failed)),
            Cell::new(whole(pool.deaths)).style(bad(pool.deaths)),
        ])
    };
    let lines = stats.report.pools.iter().map(line).collect();
    table(frame, area, app, (Pane::Pools, "Pools"), Some(columns.head()), lines);
}

pub(super) fn tasks(frame: &mut Frame, area: Rect, app: &App, stats: &SessionStats) {
    let rows = rows::tasks(stats, &app.filter);
    let columns = Columns::fitting(
        inner_width(area),
        &[
            Column::figure("RUNS FOR", 8, 0),
            functions_column(rows.iter().map(|row| row.task.function.as_str())),
            Column::figure("INDEX", 7, 1),
            Column::figure("WORKER", 10, 2),
        ],
    );
    let several = stats.report.pools.len() > 1;
    let lines = rows
        .iter()
        .map(|row| {
            let worker = match several {
                true => format!("{}/{}", row.pool.name, row.worker.name),
                false => row.worker.name.clone(),
            };
            let style = if row.task.straggler { app.theme.bad() } else { Style::new() };
            let mark = if row.task.straggler { "!" } else { "" };
            let line = columns.line(vec![
                Cell::new(format!("{mark}{}", span(row.task.ran))),
                Cell::function(&row.task.function),
                Cell::new(row.task.index.to_string()),
                Cell::path(worker),
            ]);
            line.style(style)
        })
        .collect();
    let name = (Pane::Tasks, "Slowest tasks under way");
    table(frame, area, app, name, Some(columns.head()), lines);
}

pub(super) fn functions(frame: &mut Frame, area: Rect, app: &App, stats: &SessionStats) {
    let rows = rows::functions(stats, &app.filter, app.order(Pane::Functions));
    let columns = Columns::fitting(
        inner_width(area),
        &[
            functions_column(rows.iter().map(|(_, function)| function.function.as_str())),
            Column::figure("DONE", 7, 0),
            Column::figure("P50", 7, 0),
            Column::figure("P99", 7, 1),
            Column::figure("MAX", 7, 2),
        ],
    );
    let lines = rows
        .iter()
        .map(|(_, function)| {
            let style = if function.failed > 0 { app.theme.bad() } else { Style::new() };
            columns.line(vec![
                Cell::function(&function.function).style(style),
                Cell::new(whole(function.done)),
                Cell::new(span(function.times.quantile(0.5))),
                Cell::new(span(function.times.quantile(0.99))),
                Cell::new(span(function.times.max())),
            ])
        })
        .collect();
    table(frame, area, app, (Pane::Functions, "Functions"), Some(columns.head()), lines);
}

/// Returns the column of functions. It has room for the last names in their paths, and for the
/// files and lines of closures.
fn functions_column<'a>(functions: impl Iterator<Item = &'a str>) -> Column {
    let least = functions.map(|function| last(function).chars().count()).max();
    Column::text("FUNCTION", least.unwrap_or(0).clamp(8, 16), usize::MAX)
}

pub(super) fn actors(frame: &mut Frame, area: Rect, app: &App, stats: &SessionStats) {
    let measure = rows::Measure::of(stats);
    let columns = Columns::fitting(
        inner_width(area),
        &[
            Column::text("ACTOR", 10, 40),
            Column::text("TYPE", 10, usize::MAX).rank(6),
            Column::figure("MSGS/S", 6, 0),
            Column::figure("WAITING", 7, 0),
            Column::figure("P50", 7, 4),
            Column::figure("P99", 7, 1),
            Column::figure("FAILED", 6, 2),
            Column::figure("RESTARTS", 8, 3),
            Column::figure(measure.name(), 6, 5),
        ],
    );
    let bad = |number: u64| if number > 0 { app.theme.bad() } else { Style::new() };
    let lines = rows::actors(stats, &app.filter, app.order(Pane::Actors))
        .iter()
        .map(|row| {
            let (actor, name) = (row.actor, row.name());
            columns.line(vec![
                if actor.names.is_empty() { Cell::path(name) } else { Cell::new(name) },
                Cell::path(&actor.actor_type),
                Cell::new(count(actor.rate)),
                Cell::new(whole(actor.waiting)),
                Cell::new(span(actor.latency.quantile(0.5))),
                Cell::new(span(actor.latency.quantile(0.99))),
                Cell::new(whole(actor.failed)).style(bad(actor.failed)),
                Cell::new(whole(actor.restarts)).style(bad(actor.restarts)),
                Cell::new(row.memory.map_or("-".into(), bytes)),
            ])
        })
        .collect();
    table(frame, area, app, (Pane::Actors, "Actors"), Some(columns.head()), lines);
}

pub(super) fn processes(frame: &mut Frame, area: Rect, app: &App, stats: &SessionStats) {
    let measure = rows::Measure::of(stats);
    let columns = Columns::fitting(
        inner_width(area),
        &[
            Column::text("PROCESS", 10, usize::MAX),
            Column::figure("PID", 6, 2),
            Column::figure("CPU", 5, 0),
            Column::figure(measure.name(), 7, 0),
            Column::figure("RESTARTS", 8, 1),
        ],
    );
    let lines = rows::processes(stats, &app.filter, app.order(Pane::Processes))
        .iter()
        .map(|(depth, process)| {
            // The supervisors' names are those of the parent's line, or the pool.
            let name = format!("{}{}", "  ".repeat(*depth), process.name);
            let cpu = app.trends().and_then(|trends| trends.cpu(process.id));
            let memory = process.usage.as_ref().map(|usage| bytes(measure.bytes(usage)));
            let state = match &process.state {
                ProcessState::Running => String::new(),
                other => format!(" ({other})"),
            };
            columns.line(vec![
                Cell::new(format!("{name}{state}")),
                Cell::new(process.pid.map_or("-".into(), |pid| pid.to_string())),
                Cell::new(cpu.map_or("-".into(), percent)),
                Cell::new(memory.unwrap_or_else(|| "-".into())),
                Cell::new(process.restarts.to_string()),
            ])
        })
        .collect();
    table(frame, area, app, (Pane::Processes, "Processes"), Some(columns.head()), lines);
}

/// Returns the width of a pane within its border.
fn inner_width(area: Rect) -> usize {
    usize::from(area.width).saturating_sub(2)
}

pub(super) fn events(frame: &mut Frame, area: Rect, app: &App, stats: &SessionStats) {
    let width = inner_width(area);
    let lines = rows::events(stats, &app.filter)
        .iter()
        .map(|(event, text)| {
            let style = match &event.kind {
                EventKind::WorkerStarted { .. } => app.theme.dim(),
                EventKind::WorkerEnded { expected: true, .. } => app.theme.dim(),
                EventKind::ChildRestarted { reason, .. }
                    if reason.is_normal() || reason.is_disruption() =>
                {
                    app.theme.dim()
                }
                EventKind::TaskAbandoned { .. } => app.theme.bad(),
                _ => Style::new(),
            };
            let ago = span(age(event.at, stats.taken_at));
            Line::styled(format!("{ago:>7} {}", fit(text, width.saturating_sub(8))), style)
        })
        .collect();
    table(frame, area, app, (Pane::Events, "Last events"), None, lines);
}
