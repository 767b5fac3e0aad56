//! The panes with tables: pools, tasks, functions, actors, processes, events.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::super::app::{App, Pane};
use super::table::Table;
use super::{marked, sorted};
use crate::model::Model;

/// Draws the table of a pane.
pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, model: &Model, pane: Pane) {
    let Some(table) = pane.table(model) else { return };
    let rows = app.rows(model, pane);
    let focused = app.pane == pane;
    // The selected pool counts while other panes have the focus, too.
    let mark = match pane {
        Pane::Pools if !focused => app.theme.bold(),
        _ => marked(true, focused, app),
    };
    let none = rows.is_empty().then_some("none");
    let mut notes: Vec<&str> = rows.iter().filter_map(|(_, row)| row.note.as_deref()).collect();
    notes.sort_unstable();
    notes.dedup();
    let notes = none.into_iter().chain(notes);
    let shown = Table {
        title: format!("{} {}{}", table.name, rows.len(), sorted(app, pane)),
        focused,
        of: table,
        rows,
        // On the smallest screen there is one line of events.
        has_head: pane != Pane::Events,
        selected: (app.cursor(pane), mark),
        notes: notes.map(|note| Line::styled(note, app.theme.dim())).collect(),
    };
    shown.draw(frame, area, app);
}
