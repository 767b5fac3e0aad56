//! A table in a border, which shows the part with the selected line.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::super::app::App;
use super::columns::Columns;
use super::{block, first_row};
use crate::model::table::{self, Row};

pub(super) struct Table<'a> {
    pub(super) title: String,
    /// Whether keys go to it.
    pub(super) focused: bool,
    pub(super) of: &'a table::Table,
    /// The rows that are listed, with their depths.
    pub(super) rows: Vec<(usize, &'a Row)>,
    pub(super) has_head: bool,
    /// The selected row, and its style.
    pub(super) selected: (usize, Style),
    /// Lines below the rows, which can't be selected.
    pub(super) notes: Vec<Line<'a>>,
}

impl Table<'_> {
    pub(super) fn draw(self, frame: &mut Frame, area: Rect, app: &App) {
        let block = block(app, self.title, self.focused);
        let inner = block.inner(area);
        let height = usize::from(inner.height).saturating_sub(usize::from(self.has_head));
        let columns = Columns::fitting(usize::from(inner.width), self.of);
        let (cursor, mark) = self.selected;
        let first = first_row(cursor, height, self.rows.len());
        let head = self.has_head.then(|| Line::styled(columns.head(), app.theme.dim()));
        let mut shown: Vec<Line> = head.into_iter().collect();
        let visible = self.rows.into_iter().enumerate().skip(first).take(height);
        shown.extend(visible.map(|(index, (depth, row))| {
            let line = columns.line(depth, row, &app.theme);
            if index == cursor { line.patch_style(mark) } else { line }
        }));
        shown.extend(self.notes);
        frame.render_widget(Paragraph::new(shown).block(block), area);
    }
}
