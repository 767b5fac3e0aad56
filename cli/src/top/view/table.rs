//! A table in a border, which shows the part with the selected line.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::super::app::App;
use super::{block, first_row};

pub(super) struct Table<'a> {
    pub(super) title: String,
    /// Whether keys go to it.
    pub(super) focused: bool,
    pub(super) head: Option<String>,
    pub(super) lines: Vec<Line<'a>>,
    /// The selected line, and its style.
    pub(super) selected: (usize, Style),
    /// Lines below the others, which can't be selected.
    pub(super) notes: Vec<Line<'a>>,
}

impl Table<'_> {
    pub(super) fn draw(self, frame: &mut Frame, area: Rect, app: &App) {
        let block = block(app, self.title, self.focused);
        let height = usize::from(block.inner(area).height);
        let height = height.saturating_sub(usize::from(self.head.is_some()));
        let (cursor, mark) = self.selected;
        let first = first_row(cursor, height, self.lines.len());
        let head = self.head.map(|head| Line::styled(head, app.theme.dim()));
        let mut shown: Vec<Line> = head.into_iter().collect();
        let visible = self.lines.into_iter().enumerate().skip(first).take(height);
        shown.extend(visible.map(|(index, line)| match index == cursor {
            true => line.patch_style(mark),
            false => line,
        }));
        shown.extend(self.notes);
        frame.render_widget(Paragraph::new(shown).block(block), area);
    }
}
