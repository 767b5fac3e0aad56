//! The panes with tables: pools, tasks, functions, actors, processes, events.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::super::app::{App, Pane};
use super::columns::Columns;
use super::table::Table;
use super::{marked, sorted};
use crate::model::Model;

/// Draws the table of a pane.
pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, model: &Model, pane: Pane) {
    let Some(table) = pane.table(model) else { return };
    let columns = Columns::fitting(usize::from(area.width).saturating_sub(2), table);
    let rows = app.rows(model, pane).into_iter();
    let lines: Vec<Line> = rows.map(|(depth, row)| columns.line(depth, row, &app.theme)).collect();
    let focused = app.pane == pane;
    // The selected pool counts while other panes have the focus, too.
    let mark = match pane {
        Pane::Pools if !focused => app.theme.bold(),
        _ => marked(true, focused, app),
    };
    let none = lines.is_empty().then(|| Line::styled("none", app.theme.dim()));
    let table = Table {
        title: format!("{} {}{}", table.name, lines.len(), sorted(app, pane)),
        focused,
        // On the smallest screen there is one line of events.
        head: (pane != Pane::Events).then(|| columns.head()),
        lines,
        selected: (app.cursor(pane), mark),
        notes: none.into_iter().collect(),
    };
    table.draw(frame, area, app);
}
