//! The list of sessions.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::super::app::App;
use super::super::format::{age, bytes, count, span, whole};
use super::super::rows;
use super::columns::{Cell, Column, Columns};
use super::table::Table;
use super::{block, marked};

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App) {
    let inner = block(app, "", true).inner(area);
    let all = app.listed_sessions();
    let shows = |measure| all.iter().any(|(_, stats)| rows::Measure::of(stats) == measure);
    let measures = match (shows(rows::Measure::Pss), shows(rows::Measure::Rss)) {
        (true, true) => "PSS, RSS",
        (_, false) => rows::Measure::Pss.name(),
        (false, true) => rows::Measure::Rss.name(),
    };
    let columns = Columns::fitting(
        usize::from(inner.width),
        &[
            Column::text("NAME", 14, 14),
            Column::text("PROGRAM", 12, 40),
            Column::figure("BACKEND", 10, 2),
            Column::figure("PROCESSES", 9, 1),
            Column::figure("TASKS/S", 8, 0),
            Column::figure(measures, 8, 0),
            Column::figure("AGE", 8, 0),
        ],
    );
    let lines = all.iter().map(|(observed, stats)| {
        let since = stats.report.processes.first().map(|head| age(head.since, stats.taken_at));
        columns.line(vec![
            Cell::new(observed.head.name()),
            Cell::new(&stats.program),
            Cell::new(&stats.backend),
            Cell::new(whole(stats.report.processes.len() as u64)),
            Cell::new(count(rows::rate(stats))),
            Cell::new(bytes(rows::memory(stats))),
            Cell::new(since.map(span).unwrap_or_default()),
        ])
    });
    let problems = app.observed.iter().filter_map(|session| session.stats.as_ref().err());
    let mut notes: Vec<Line> =
        problems.map(|problem| Line::styled(problem.to_string(), app.theme.bad())).collect();
    if all.is_empty() && notes.is_empty() {
        notes.push(Line::styled("There are no sessions.", app.theme.dim()));
    }
    let table = Table {
        title: format!("Sessions {}", all.len()),
        focused: true,
        head: Some(columns.head()),
        lines: lines.collect(),
        selected: (app.session_cursor, marked(true, true, app)),
        notes,
    };
    table.draw(frame, area, app);
}
