//! The columns of a table in a width in characters. Where it is small, those that matter least are
//! left out.

use ratatui::text::{Line, Span};

use super::super::theme::Theme;
use super::text::{fit, fit_function, fit_path};
use crate::model::table::{Column, Cut, Row, Table};

/// The columns of a table that are shown, each with its place among all and its width.
pub(super) struct Columns(Vec<(usize, Column, usize)>);

impl Columns {
    /// Chooses columns that fit `width`.
    pub(super) fn fitting(width: usize, table: &Table) -> Columns {
        let mut shown: Vec<(usize, Column)> = table.columns.iter().copied().enumerate().collect();
        let least = |(_, column): &(usize, Column)| column.width.0;
        // No text is cut.
        let whole = |(place, column): &(usize, Column)| {
            let indent = |row: &Row| if *place == 0 { 2 * row.depth } else { 0 };
            let texts =
                table.rows.iter().map(|row| indent(row) + row.cells[*place].text.chars().count());
            texts.max().unwrap_or(0).clamp(column.width.0, column.width.1)
        };
        let whole: Vec<usize> = shown.iter().map(whole).collect();
        let total = |widths: &mut dyn Iterator<Item = usize>| {
            widths.map(|width| width + 1).sum::<usize>().saturating_sub(1)
        };
        while let Some(rank) = shown.iter().map(|(_, column)| column.rank).max()
            && rank > 0
            && (total(&mut shown.iter().map(least)) > width
                || rank >= Column::EXTRA
                    && total(&mut shown.iter().map(|(place, _)| whole[*place])) > width)
        {
            shown.retain(|(_, column)| column.rank != rank);
        }
        let mut left = width.saturating_sub(total(&mut shown.iter().map(least)));
        let with_width = |(place, column): (usize, Column)| {
            let (least, most) = column.width;
            let width = (least + left).min(most);
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

    /// Returns the line of a row, which is indented by its depth.
    pub(super) fn line(&self, depth: usize, row: &Row, theme: &Theme) -> Line<'static> {
        let mut spans = Vec::with_capacity(2 * self.0.len());
        for (place, column, width) in &self.0 {
            let cell = &row.cells[*place];
            let fit = match cell.cut {
                Cut::End | Cut::Never => fit,
                Cut::Begin => fit_path,
                Cut::Function => fit_function,
            };
            let indent = if *place == 0 { "  ".repeat(depth) } else { String::new() };
            let text = fit(&(indent + &cell.text), *width);
            let text = match column.is_figure {
                true => format!("{:>width$}", text.trim_end(), width = *width),
                false => text,
            };
            if !spans.is_empty() {
                spans.push(Span::raw(" "));
            }
            spans.push(Span::styled(text, theme.mark(cell.mark)));
        }
        Line::from(spans).style(theme.mark(row.mark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::table::Cell;

    #[test]
    fn columns_that_matter_least_are_left_out_first() {
        let table = Table::of("Pools", ["a-long-name"])
            .text("NAME", 6, 14, |name| Cell::text(*name))
            .figure("IDLE", 4, 2, |_| Cell::count(3))
            .figure("LOST", 4, Column::EXTRA, |_| Cell::count(5))
            .figure("DONE", 5, 1, |_| Cell::count(7_000_000))
            .done();
        let theme = Theme { color: false, unicode: false };
        let shown = |width| {
            let columns = Columns::fitting(width, &table);
            [columns.head(), columns.line(1, &table.rows[0], &theme).to_string()]
        };
        assert_eq!(shown(30), ["NAME           IDLE LOST  DONE", "  a-long-name     3    5  7.0M"]);
        // No text is cut for an extra column.
        assert_eq!(shown(26), ["NAME           IDLE  DONE", "  a-long-name     3  7.0M"]);
        assert_eq!(shown(17), ["NAME   IDLE  DONE", "  a-l~    3  7.0M"]);
        assert_eq!(shown(16), ["NAME        DONE", "  a-long-~  7.0M"]);
        assert_eq!(shown(8), ["NAME    ", "  a-lon~"]);
    }
}
