//! One process: its statistics, its tasks, its last output, its stacks.

use fiber_core::ProcessId;
use fiber_core::stats::SessionStats;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::super::app::App;
use super::super::format::{age, bytes, percent, plural, span, whole};
use super::block;

pub(super) fn draw(
    frame: &mut Frame,
    area: Rect,
    app: &mut App,
    stats: &SessionStats,
    id: ProcessId,
) {
    let Some(process) = stats.report.process(id) else { return };
    let mut lines = Vec::new();
    let mut figure = |name: &str, value: String| {
        lines.push(Line::from(vec![
            Span::styled(format!("{name:<10}"), app.theme.dim()),
            Span::raw(value),
        ]));
    };
    let host = if process.host.is_empty() { "-" } else { &process.host };
    figure("runs", format!("{} on {host}, {}, {}", process.place, process.role, process.state));
    figure(
        "since",
        format!(
            "{}, after {}",
            span(age(process.since, stats.taken_at)),
            plural(usize::try_from(process.restarts).unwrap_or(usize::MAX), "restart")
        ),
    );
    if let Some(usage) = &process.usage {
        let lately = app.trends().and_then(|trends| trends.cpu(id));
        let lately = lately.map(|share| format!(", now {}", percent(share))).unwrap_or_default();
        figure("CPU", format!("{}{lately}, {} threads", span(usage.cpu), usage.threads));
        figure(
            "memory",
            match usage.pss {
                Some(pss) => format!("{} PSS", bytes(pss)),
                None => format!("{} RSS", bytes(usage.memory)),
            },
        );
        figure(
            "values",
            format!(
                "{}, in shared memory {}, in a file {}",
                bytes(usage.stored),
                bytes(usage.shared),
                bytes(usage.spilled)
            ),
        );
        if usage.outputs > 0 {
            let elsewhere = match usage.elsewhere {
                0 => String::new(),
                elsewhere => format!(", {} on other machines", bytes(elsewhere)),
            };
            figure("outputs", whole(usage.outputs) + &elsewhere);
        }
        if usage.value_limit > 0 {
            let full = if usage.has_full_values() { ": full" } else { "" };
            figure("limit", format!("{} for values{full}", bytes(usage.value_limit)));
        }
        figure("links", format!("{} sent, {} received", bytes(usage.sent), bytes(usage.received)));
    }
    let workers = stats.report.pools.iter().flat_map(|pool| &pool.workers);
    if let Some(worker) = workers.into_iter().find(|worker| worker.process == id) {
        figure(
            "tasks",
            format!(
                "{} pending, {} done, {} failed, {} in all",
                whole(worker.pending),
                whole(worker.done),
                whole(worker.failed),
                span(worker.busy)
            ),
        );
        for task in &worker.running {
            let text = format!("{}: task {} (`{}`)", span(task.ran), task.index, task.function);
            let (style, note) = match task.straggler {
                true => (app.theme.bad(), ", ten times the usual time"),
                false => (app.theme.bold(), ""),
            };
            lines.push(Line::from(vec![
                Span::styled(format!("{:<10}", "runs for"), app.theme.dim()),
                Span::styled(format!("{text}{note}"), style),
            ]));
        }
    }
    lines.push(Line::default());
    lines.push(Line::styled("last output", app.theme.dim()));
    let tail = process.tail.iter().filter(|line| app.text_filter.passes(line));
    let tail: Vec<Line> = tail.map(|line| Line::from(plain(line))).collect();
    match tail.is_empty() {
        true => lines.push(Line::styled("none", app.theme.dim())),
        false => lines.extend(tail),
    }
    scrolled(frame, area, app, process.name.clone(), lines);
}

pub(super) fn draw_stack(
    frame: &mut Frame,
    area: Rect,
    app: &mut App,
    stats: &SessionStats,
    id: ProcessId,
) {
    let name = stats.report.process(id).map_or("a process", |process| process.name.as_str());
    let title = format!("Stacks of {name}");
    let lines = match &app.stack {
        None => vec![Line::from("Waiting for the process …")],
        Some(text) => {
            // An empty line is before each thread.
            let threads = text.split("\n\n").filter(|thread| app.text_filter.passes(thread));
            let text = threads.collect::<Vec<_>>().join("\n\n");
            match text.is_empty() {
                true => vec![Line::styled("none", app.theme.dim())],
                false => text.lines().map(|line| Line::from(plain(line))).collect(),
            }
        }
    };
    scrolled(frame, area, app, title, lines);
}

/// Replaces tabs, which terminals draw with a width of their own.
fn plain(line: &str) -> String {
    line.replace('\t', "    ")
}

fn scrolled(frame: &mut Frame, area: Rect, app: &mut App, title: String, lines: Vec<Line>) {
    let block = block(app, title, true);
    let height = usize::from(block.inner(area).height);
    app.scroll = app.scroll.min(lines.len().saturating_sub(height));
    let shown: Vec<Line> = lines.into_iter().skip(app.scroll).take(height).collect();
    frame.render_widget(Paragraph::new(shown).block(block), area);
}
