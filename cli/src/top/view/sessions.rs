//! The list of sessions.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::super::app::App;
use super::marked;
use super::table::Table;
use crate::model::tables;

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App) {
    let all = app.listed_sessions();
    let listed = tables::sessions(
        all.iter().map(|(observed, stats)| (observed.head.name.as_str(), &***stats)),
    );
    let problems = app.observed.iter().filter_map(|session| session.stats.as_ref().err());
    let mut notes: Vec<Line> =
        problems.map(|problem| Line::styled(problem.to_string(), app.theme.bad())).collect();
    if all.is_empty() && notes.is_empty() {
        notes.push(Line::styled("There are no sessions.", app.theme.dim()));
    }
    let table = Table {
        title: format!("Sessions {}", all.len()),
        focused: true,
        of: &listed,
        rows: listed.rows.iter().map(|row| (row.depth, row)).collect(),
        has_head: true,
        selected: (app.session_cursor, marked(true, true, app)),
        notes,
    };
    table.draw(frame, area, app);
}
