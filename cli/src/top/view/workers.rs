//! The workers of a pool: a bar for each, or a grid if they are many.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::super::app::{App, Pane};
use super::text::{fit, fit_function, fit_path};
use super::{block, first_row, marked, sorted};
use crate::model::Model;
use crate::model::format::{last, plural, span};
use crate::model::workers::{State, Worker, counts};

/// The width of a worker's bar.
const BAR: usize = 8;

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &mut App, model: &Model) {
    let Some(pool) = app.pool(model) else {
        app.grid = None;
        let block = block(app, "Workers", app.pane == Pane::Workers);
        frame.render_widget(Paragraph::new("There is no pool.").block(block), area);
        return;
    };
    let all = app.workers(model);
    let inner = block(app, "", false).inner(area);
    // A line of statistics is above the workers.
    let (width, height) = (usize::from(inner.width), usize::from(inner.height).saturating_sub(1));
    let summary = summary(app, &all, width);
    let (lines, title) = match app.zoom {
        Some((first, number)) => {
            app.grid = app.grid.or(Some((1, number)));
            let some = &all[first.min(all.len())..(first + number).min(all.len())];
            let title = format!("{} of {}", plural(some.len(), "worker"), all.len());
            (bars(app, some, width, height), title)
        }
        None if all.len() <= height => {
            app.grid = None;
            (bars(app, &all, width, height), plural(all.len(), "worker"))
        }
        None => {
            let each = all.len().div_ceil((width * height).max(1)).max(1);
            app.grid = Some((width.max(1), each));
            let title = match each {
                1 => plural(all.len(), "worker"),
                each => format!("{}, {each} a cell", plural(all.len(), "worker")),
            };
            (grid(app, &all, width, each), title)
        }
    };
    let focused = app.pane == Pane::Workers;
    let name = &model.stats.report.pools[pool].name;
    let title = format!("{name}: {title}{}", sorted(app, Pane::Workers));
    let block = block(app, title, focused);
    let shown: Vec<Line> = std::iter::once(summary).chain(lines).collect();
    frame.render_widget(Paragraph::new(shown).block(block), area);
}

/// Returns how many workers do what. Names that don't fit are left out, the last ones first: the
/// symbols say the same.
fn summary(app: &App, workers: &[&Worker], width: usize) -> Line<'static> {
    let usual = [State::Long, State::Short, State::Idle];
    let counts = counts(workers).into_iter();
    let shown: Vec<_> =
        counts.filter(|(state, _, number)| *number > 0 || usual.contains(state)).collect();
    let line = |named: usize| {
        let spans = shown.iter().enumerate().flat_map(|(place, (state, name, number))| {
            let name = if place < named { format!(" {name}") } else { String::new() };
            let symbol = app.theme.symbol(*state).to_string();
            let space = if place + 1 < shown.len() { " " } else { "" };
            [
                Span::styled(symbol, app.theme.state(*state)),
                Span::raw(format!("{number}{name}{space}")),
            ]
        });
        Line::from_iter(spans)
    };
    let fits = |line: &Line<'_>| line.width() <= width;
    (0..=shown.len()).rev().map(line).find(fits).unwrap_or_else(|| line(0))
}

fn bars(app: &App, workers: &[&Worker], width: usize, height: usize) -> Vec<Line<'static>> {
    let cursor = app.cursor(Pane::Workers);
    let first = first_row(cursor, height, workers.len());
    let names = workers.iter().map(|worker| worker.name.chars().count()).max().unwrap_or(0);
    let names = names.clamp(4, 12);
    let rest = width.saturating_sub(names + BAR + 2);
    let visible = workers.iter().enumerate().skip(first).take(height);
    visible
        .map(|(index, worker)| {
            let task = match worker.task() {
                Some(task) => {
                    let ran = span(task.ran);
                    let index = format!("#{}", task.index);
                    let (function, room) =
                        (last(&task.function), rest.saturating_sub(ran.len() + 1));
                    match room.checked_sub(index.len() + 1) {
                        Some(room) if function.chars().count() <= room => {
                            format!("{ran} {function} {index}")
                        }
                        // The pane of tasks has the index.
                        _ => format!("{ran} {}", fit_path(function, room).trim_end()),
                    }
                }
                None => fit_function(&worker.what, rest),
            };
            let line = Line::from(vec![
                Span::raw(fit_path(&worker.name, names) + " "),
                Span::styled(bar(app, worker), app.theme.state(worker.state)),
                Span::raw(format!(" {}", fit(&task, rest))),
            ]);
            line.patch_style(marked(index == cursor, app.pane == Pane::Workers, app))
        })
        .collect()
}

/// Returns a bar as long as the share of the time that the worker ran tasks lately.
fn bar(app: &App, worker: &Worker) -> String {
    let busy = app.trends().and_then(|trends| trends.busy(worker.process));
    let share = match worker.state {
        // The time of a task counts when it is complete.
        State::Long | State::Slow => 1.0,
        State::Short | State::Drain => busy.unwrap_or(1.0).max(1.0 / BAR as f64),
        State::Idle | State::Start => busy.unwrap_or(0.0),
    };
    let filled = ((share * BAR as f64).round() as usize).min(BAR);
    let symbol = match worker.state {
        State::Idle => app.theme.symbol(State::Short),
        state => app.theme.symbol(state),
    };
    let rest = app.theme.symbol(State::Idle);
    let drawn = std::iter::repeat_n(symbol, filled).chain(std::iter::repeat_n(rest, BAR - filled));
    drawn.collect()
}

/// Returns a cell for each `each` workers: the most noticeable state of them.
fn grid(app: &App, workers: &[&Worker], width: usize, each: usize) -> Vec<Line<'static>> {
    let cursor = app.cursor(Pane::Workers);
    let focused = app.pane == Pane::Workers;
    let cells: Vec<Span> = workers
        .chunks(each)
        .enumerate()
        .map(|(index, some)| {
            let state = some.iter().map(|worker| worker.state).min().unwrap_or(State::Idle);
            let style = app.theme.state(state).patch(marked(index == cursor, focused, app));
            Span::styled(app.theme.symbol(state).to_string(), style)
        })
        .collect();
    cells.chunks(width.max(1)).map(|row| Line::from(row.to_vec())).collect()
}
