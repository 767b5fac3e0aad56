//! The panes with tables: pools, tasks, functions, processes, failures.

use fiber_core::stats::{EventKind, PoolPhase, SessionStats};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::super::app::{App, Pane};
use super::super::format::{age, bytes, count, percent, span, whole};
use super::super::rows;
use super::{block, first_row, fit, fit_path, marked, title};

/// Draws lines below a head, the selected one marked and in sight.
fn table(
    frame: &mut Frame,
    area: Rect,
    app: &App,
    (pane, name): (Pane, &str),
    head: Option<String>,
    lines: Vec<Line>,
) {
    let focused = app.pane == pane;
    let block = block(app, title(app, pane, name, lines.len()), focused);
    let inner = block.inner(area);
    let height = usize::from(inner.height).saturating_sub(usize::from(head.is_some()));
    let cursor = app.cursor(pane);
    let first = first_row(cursor, height, lines.len());
    let is_empty = lines.is_empty();
    let mut shown: Vec<Line> =
        head.map(|head| Line::styled(head, app.theme.head())).into_iter().collect();
    if is_empty {
        shown.push(Line::styled("none", app.theme.dim()));
    }
    let visible = lines.into_iter().enumerate().skip(first).take(height);
    shown.extend(visible.map(|(index, line)| {
        // The selected pool counts while other panes have the focus, too.
        let selected = index == cursor;
        let mark = if selected && pane == Pane::Pools && !focused {
            app.theme.bold()
        } else {
            marked(selected, focused, app)
        };
        line.patch_style(mark)
    }));
    frame.render_widget(Paragraph::new(shown).block(block), area);
}

pub(super) fn pools(frame: &mut Frame, area: Rect, app: &App, stats: &SessionStats) {
    let width = usize::from(area.width).saturating_sub(2);
    let names = width.saturating_sub(66).clamp(8, 40);
    let head = format!(
        "{} {:>9} {:>5} {:>7} {:>8} {:>8} {:>8} {:>7} {:>6}",
        fit("POOL", names),
        "WORKERS",
        "IDLE",
        "TASKS/S",
        "WAITING",
        "PENDING",
        "DONE",
        "FAILED",
        "DEATHS"
    );
    let line = |pool: &fiber_core::stats::PoolStats| {
        let name = match pool.phase {
            PoolPhase::Open => pool.name.clone(),
            PoolPhase::Closed => format!("{} (closed)", pool.name),
            _ => format!("{} (ended)", pool.name),
        };
        let tasks = &pool.tasks;
        let failed = tasks.failed + tasks.abandoned;
        let bad = |number: u64| if number > 0 { app.theme.bad() } else { Style::new() };
        Line::from(vec![
            Span::raw(format!(
                "{} {:>9} {:>5} {:>7} {:>8} {:>8} {:>8} ",
                fit(&name, names),
                format!("{}/{}", pool.ready, pool.wanted),
                pool.idle,
                count(pool.rate),
                whole(tasks.waiting),
                whole(tasks.pending),
                whole(tasks.done),
            )),
            Span::styled(format!("{:>7} ", whole(failed)), bad(failed)),
            Span::styled(format!("{:>6}", whole(pool.deaths)), bad(pool.deaths)),
        ])
    };
    let lines = stats.report.pools.iter().map(line).collect();
    table(frame, area, app, (Pane::Pools, "Pools"), Some(head), lines);
}

pub(super) fn tasks(frame: &mut Frame, area: Rect, app: &App, stats: &SessionStats) {
    let width = usize::from(area.width).saturating_sub(2);
    let names = width.saturating_sub(8 + 1 + 1 + 7 + 1 + 10).max(6);
    let head =
        format!("{:>8} {} {:>7} {:>10}", "RUNS FOR", fit("FUNCTION", names), "INDEX", "WORKER");
    let several = stats.report.pools.len() > 1;
    let lines = rows::tasks(stats, &app.filter)
        .iter()
        .map(|row| {
            let worker = match several {
                true => format!("{}/{}", row.pool.name, row.worker.name),
                false => row.worker.name.clone(),
            };
            let style = if row.task.straggler { app.theme.bad() } else { Style::new() };
            let mark = if row.task.straggler { "!" } else { "" };
            Line::styled(
                format!(
                    "{:>8} {} {:>7} {:>10}",
                    format!("{mark}{}", span(row.task.ran)),
                    fit_path(&row.task.function, names),
                    row.task.index,
                    fit_path(&worker, 10).trim_end(),
                ),
                style,
            )
        })
        .collect();
    table(frame, area, app, (Pane::Tasks, "Slowest tasks under way"), Some(head), lines);
}

pub(super) fn functions(frame: &mut Frame, area: Rect, app: &App, stats: &SessionStats) {
    let width = usize::from(area.width).saturating_sub(2);
    let names = width.saturating_sub(4 * 8).max(6);
    let head =
        format!("{} {:>7} {:>7} {:>7} {:>7}", fit("FUNCTION", names), "DONE", "P50", "P99", "MAX");
    let lines = rows::functions(stats, &app.filter, app.order(Pane::Functions))
        .iter()
        .map(|(_, function)| {
            let style = if function.failed > 0 { app.theme.bad() } else { Style::new() };
            Line::from(vec![
                Span::styled(fit_path(&function.function, names), style),
                Span::raw(format!(
                    " {:>7} {:>7} {:>7} {:>7}",
                    whole(function.done),
                    span(function.times.quantile(0.5)),
                    span(function.times.quantile(0.99)),
                    span(function.times.max()),
                )),
            ])
        })
        .collect();
    table(frame, area, app, (Pane::Functions, "Functions"), Some(head), lines);
}

pub(super) fn processes(frame: &mut Frame, area: Rect, app: &App, stats: &SessionStats) {
    let width = usize::from(area.width).saturating_sub(2);
    let names = width.saturating_sub(7 + 6 + 8 + 9).max(8);
    let head = format!(
        "{} {:>6} {:>5} {:>7} {:>8}",
        fit("PROCESS", names),
        "PID",
        "CPU",
        "MEMORY",
        "RESTARTS"
    );
    let lines = rows::processes(stats, &app.filter, app.order(Pane::Processes))
        .iter()
        .map(|(depth, process)| {
            // The supervisors' names are those of the parent's line, or the pool.
            let name = format!("{}{}", "  ".repeat(*depth), process.name);
            let cpu = app.trends().and_then(|trends| trends.cpu(process.id));
            let memory = process.figures.as_ref().map(|figures| bytes(figures.memory));
            let state = match &process.state {
                fiber_core::stats::ProcessState::Running => String::new(),
                other => format!(" ({other})"),
            };
            Line::from(format!(
                "{} {:>6} {:>5} {:>7} {:>8}",
                fit(&format!("{name}{state}"), names),
                process.pid.map_or("-".into(), |pid| pid.to_string()),
                cpu.map_or("-".into(), percent),
                memory.unwrap_or_else(|| "-".into()),
                process.restarts,
            ))
        })
        .collect();
    table(frame, area, app, (Pane::Processes, "Processes"), Some(head), lines);
}

pub(super) fn events(frame: &mut Frame, area: Rect, app: &App, stats: &SessionStats) {
    let width = usize::from(area.width).saturating_sub(2);
    let lines = rows::events(stats, &app.filter)
        .iter()
        .map(|(event, text)| {
            let style = match &event.kind {
                EventKind::WorkerStarted { .. } => app.theme.dim(),
                EventKind::WorkerEnded { expected: true, .. } => app.theme.dim(),
                EventKind::TaskAbandoned { .. } => app.theme.bad(),
                _ => Style::new(),
            };
            let ago = span(age(event.at, stats.taken_at));
            Line::styled(format!("{ago:>7} {}", fit(text, width.saturating_sub(8))), style)
        })
        .collect();
    table(frame, area, app, (Pane::Events, "Last events"), None, lines);
}
