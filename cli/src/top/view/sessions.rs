//! The list of sessions.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::super::app::App;
use super::super::format::{age, bytes, count, span, whole};
use super::super::rows;
use super::{block, first_row, fit, marked};

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App) {
    let inner = block(app, "", true).inner(area);
    let names = usize::from(inner.width).saturating_sub(62).clamp(12, 40);
    let head = format!(
        "{} {} {:>10} {:>9} {:>8} {:>8} {:>8}",
        fit("NAME", 14),
        fit("PROGRAM", names),
        "BACKEND",
        "PROCESSES",
        "TASKS/S",
        "MEMORY",
        "AGE"
    );
    let mut lines = vec![Line::styled(head, app.theme.head())];
    let all: Vec<_> = app.sessions().collect();
    let first =
        first_row(app.session_cursor, usize::from(inner.height).saturating_sub(1), all.len());
    for (index, (observed, stats)) in all.iter().enumerate().skip(first) {
        let since = stats.report.processes.first().map(|head| age(head.since, stats.taken_at));
        let line = Line::from(format!(
            "{} {} {:>10} {:>9} {:>8} {:>8} {:>8}",
            fit(&observed.head.name(), 14),
            fit(&stats.program, names),
            stats.backend,
            whole(stats.report.processes.len() as u64),
            count(rows::rate(stats)),
            bytes(rows::memory(stats)),
            since.map(span).unwrap_or_default(),
        ));
        lines.push(line.patch_style(marked(index == app.session_cursor, true, app)));
    }
    for problem in app.observed.iter().filter_map(|session| session.stats.as_ref().err()) {
        lines.push(Line::styled(problem.to_string(), app.theme.bad()));
    }
    if lines.len() == 1 {
        lines.push(Line::styled("There are no sessions.", app.theme.dim()));
    }
    let block = block(app, format!("Sessions {}", all.len()), true);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
