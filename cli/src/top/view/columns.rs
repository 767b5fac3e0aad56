//! Tables of a width in characters. Where it is small, the columns that matter least are left out.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::text::{fit, fit_function, fit_path};

/// A column of a table.
#[derive(Clone, Copy)]
pub(super) struct Column {
    head: &'static str,
    /// The smallest width, and the largest.
    width: (usize, usize),
    is_figure: bool,
    /// Columns with higher ranks are left out first. Those of rank 0 stay.
    rank: u8,
}

impl Column {
    /// Returns a column of texts, which gets the room that is left, up to `most`.
    pub(super) fn text(head: &'static str, least: usize, most: usize) -> Column {
        Column { head, width: (least, most), is_figure: false, rank: 0 }
    }

    /// Returns it as one that is left out before those with lower ranks.
    pub(super) fn rank(self, rank: u8) -> Column {
        Column { rank, ..self }
    }

    /// Returns a column of statistics, which are aligned to the right.
    pub(super) fn figure(head: &'static str, width: usize, rank: u8) -> Column {
        Column { head, width: (width, width), is_figure: true, rank }
    }
}

/// The content of a column in a line.
pub(super) struct Cell {
    text: String,
    style: Style,
    fit: fn(&str, usize) -> String,
}

impl Cell {
    pub(super) fn new(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), style: Style::new(), fit }
    }

    /// Returns a path, which is cut from its beginning.
    pub(super) fn path(text: impl Into<String>) -> Cell {
        Cell { fit: fit_path, ..Cell::new(text) }
    }

    pub(super) fn function(name: &str) -> Cell {
        Cell { fit: fit_function, ..Cell::new(name) }
    }

    pub(super) fn style(self, style: Style) -> Cell {
        Cell { style, ..self }
    }
}

/// The columns of a table that are shown, each with its place among all and its width.
pub(super) struct Columns(Vec<(usize, Column, usize)>);

impl Columns {
    /// Chooses columns that fit `width`.
    pub(super) fn fitting(width: usize, columns: &[Column]) -> Columns {
        let mut shown: Vec<(usize, Column)> = columns.iter().copied().enumerate().collect();
        let least = |shown: &[(usize, Column)]| {
            shown.iter().map(|(_, column)| column.width.0 + 1).sum::<usize>().saturating_sub(1)
        };
        while least(&shown) > width
            && let Some(rank) = shown.iter().map(|(_, column)| column.rank).max()
            && rank > 0
        {
            shown.retain(|(_, column)| column.rank != rank);
        }
        let mut left = width.saturating_sub(least(&shown));
        let with_width = |(place, column): (usize, Column)| {
            let (least, most) = column.width;
            let width = (least + left).min(most.max(least));
            left -= width - least;
            (place, column, width)
        };
        Columns(shown.into_iter().map(with_width).collect())
    }

    pub(super) fn head(&self) -> String {
        let heads = self.0.iter().map(|(_, column, width)| match column.is_figure {
            true => format!("{:>width$}", column.head, width = *width),
            false => fit(column.head, *width),
        });
        heads.collect::<Vec<_>>().join(" ")
    }

    /// Returns a line with a cell for each column, also for those that are left out.
    pub(super) fn line(&self, cells: Vec<Cell>) -> Line<'static> {
        let mut spans = Vec::with_capacity(2 * self.0.len());
        for (place, column, width) in &self.0 {
            let Cell { text, style, fit } = &cells[*place];
            let text = fit(text, *width);
            let text = match column.is_figure {
                true => format!("{:>width$}", text.trim_end(), width = *width),
                false => text,
            };
            if !spans.is_empty() {
                spans.push(Span::raw(" "));
            }
            spans.push(Span::styled(text, *style));
        }
        Line::from(spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_matter_least_are_left_out_first() {
        let columns = [
            Column::text("NAME", 6, 10),
            Column::figure("IDLE", 4, 2),
            Column::figure("DONE", 5, 1),
        ];
        let shown = |width| {
            let columns = Columns::fitting(width, &columns);
            let line = columns.line(["a-long-name", "3", "7.0M"].map(Cell::new).into());
            [columns.head(), line.to_string()]
        };
        assert_eq!(shown(30), ["NAME       IDLE  DONE", "a-long-na~    3  7.0M"]);
        assert_eq!(shown(17), ["NAME   IDLE  DONE", "a-lon~    3  7.0M"]);
        assert_eq!(shown(16), ["NAME        DONE", "a-long-na~  7.0M"]);
        assert_eq!(shown(8), ["NAME    ", "a-long-~"]);
    }
}
