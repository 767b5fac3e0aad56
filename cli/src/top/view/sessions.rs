//! The list of sessions.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::super::app::App;
use super::columns::Columns;
use super::table::Table;
use super::{block, marked};
use crate::model::tables;

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App) {
    let inner = block(app, "", true).inner(area);
    let all = app.listed_sessions();
    let listed = tables::sessions(
        all.iter().map(|(observed, stats)| (observed.head.name.as_str(), &***stats)),
    );
    let columns = Columns::fitting(usize::from(inner.width), &listed);
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
        lines: listed.rows.iter().map(|row| columns.line(0, row, &app.theme)).collect(),
        selected: (app.session_cursor, marked(true, true, app)),
        notes,
    };
    table.draw(frame, area, app);
}
