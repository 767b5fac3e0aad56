//! One process: its statistics, its tasks, its last output, its stacks.

use fiber_core::ProcessId;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::super::app::App;
use super::block;
use crate::model::Model;

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &mut App, model: &Model, id: ProcessId) {
    let Some(process) = model.process(id, app.trends()) else { return };
    let terms = process.terms.into_iter().map(|(term, text, mark)| {
        Line::from(vec![
            Span::styled(format!("{term:<10}"), app.theme.dim()),
            Span::styled(text, app.theme.mark(mark)),
        ])
    });
    let mut lines: Vec<Line> = terms.collect();
    lines.push(Line::default());
    lines.push(Line::styled("last output", app.theme.dim()));
    let tail = process.tail.iter().filter(|line| app.text_filter.passes(line));
    let tail: Vec<Line> = tail.map(|line| Line::from(plain(line))).collect();
    match tail.is_empty() {
        true => lines.push(Line::styled("none", app.theme.dim())),
        false => lines.extend(tail),
    }
    scrolled(frame, area, app, process.name, lines);
}

pub(super) fn draw_stack(
    frame: &mut Frame,
    area: Rect,
    app: &mut App,
    model: &Model,
    id: ProcessId,
) {
    let name = model.stats.report.process(id).map_or("a process", |process| process.name.as_str());
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
