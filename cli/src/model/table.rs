//! A table of a session: what every face lays out, each in its own way.

use std::time::Duration;

use fiber_core::ProcessId;
use serde::{Serialize, Serializer};

use super::format;

/// The order of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// As the program created them; the tree of processes.
    #[default]
    Natural,
    /// Rows that have run for longest, or take most time, first. Of actors, the slowest.
    Time,
    /// Rows with most completed tasks, messages in a second, or most memory, first.
    Amount,
    /// Rows with most failures or restarts first.
    Failures,
}

impl Order {
    pub(crate) fn next(self) -> Order {
        match self {
            Order::Natural => Order::Time,
            Order::Time => Order::Amount,
            Order::Amount => Order::Failures,
            Order::Failures => Order::Natural,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Order::Natural => "name",
            Order::Time => "time",
            Order::Amount => "amount",
            Order::Failures => "failures",
        }
    }
}

/// The text that rows must contain, in lower case. An empty one lets all pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter(pub(crate) String);

impl Filter {
    pub(crate) fn passes(&self, text: &str) -> bool {
        self.0.is_empty() || text.to_lowercase().contains(&self.0.to_lowercase())
    }
}

/// How much a cell, a row or a line is to be noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mark {
    #[default]
    Plain,
    Faint,
    Slow,
    Bad,
}

/// The part of a text that goes first where it has no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cut {
    #[default]
    End,
    /// The beginning, as of paths of modules.
    Begin,
    /// The beginning. The name of a closure keeps its file and line for longest.
    Function,
    /// The end, and nothing where rows may be of any width.
    Never,
}

/// The content of a column in a row.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// The number by which it is sorted. `None` is a text, which is sorted and filtered by itself.
    pub(crate) number: Option<f64>,
    pub(crate) mark: Mark,
    /// The shares of a whole that are done, and under way.
    pub(crate) bar: Option<[f64; 2]>,
    #[serde(skip)]
    pub(crate) cut: Cut,
}

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// Returns a path, which is cut from its beginning.
    pub(crate) fn path(text: impl Into<String>) -> Cell {
        Cell { cut: Cut::Begin, ..Cell::text(text) }
    }

    pub(crate) fn function(name: &str) -> Cell {
        Cell { cut: Cut::Function, ..Cell::text(name) }
    }

    /// Returns a text that is shown as a whole where rows may be of any width.
    pub(crate) fn words(text: impl Into<String>) -> Cell {
        Cell { cut: Cut::Never, ..Cell::text(text) }
    }

    /// Returns a number with the text that stands for it.
    pub(crate) fn number(text: impl Into<String>, number: f64) -> Cell {
        Cell { number: Some(number), ..Cell::text(text) }
    }

    pub(crate) fn count(number: u64) -> Cell {
        Cell::number(format::whole(number), number as f64)
    }

    /// Returns a number of failures, which is marked unless it is 0.
    pub(crate) fn failures(number: u64) -> Cell {
        Cell::count(number).marked_if(number > 0, Mark::Bad)
    }

    pub(crate) fn rate(number: f64) -> Cell {
        Cell::number(format::rate(number), number)
    }

    pub(crate) fn bytes(bytes: u64) -> Cell {
        Cell::number(format::bytes(bytes), bytes as f64)
    }

    pub(crate) fn time(time: Duration) -> Cell {
        Cell::number(format::span(time), time.as_secs_f64())
    }

    pub(crate) fn share(share: f64) -> Cell {
        Cell::number(format::percent(share), share)
    }

    /// Returns the cell of a value, or one that says that there is none.
    pub(crate) fn of<T>(value: Option<T>, cell: impl Fn(T) -> Cell) -> Cell {
        value.map_or_else(|| Cell::number("-", -1.0), cell)
    }

    pub(crate) fn marked_if(self, marked: bool, mark: Mark) -> Cell {
        if marked { Cell { mark, ..self } } else { self }
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Column {
    pub(crate) head: &'static str,
    /// Whether its values are aligned to the right.
    pub(crate) is_figure: bool,
    /// The smallest width in characters, and the largest.
    #[serde(skip)]
    pub(crate) width: (usize, usize),
    /// Columns with higher ranks are left out first where there is no room. Those of rank 0 stay.
    #[serde(skip)]
    pub(crate) rank: u8,
    /// The order in which rows with more in this column come first.
    #[serde(skip)]
    order: Option<Order>,
}

impl Column {
    /// The smallest rank of columns that are shown only where no text has to be cut for them.
    pub(crate) const EXTRA: u8 = 10;
}

/// A row of a table.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) cells: Vec<Cell>,
    pub(crate) mark: Mark,
    /// The process that it is about.
    #[serde(serialize_with = "id")]
    pub(crate) process: Option<ProcessId>,
    /// The number of rows above it in the tree.
    pub(crate) depth: usize,
    /// A text that is too long for a column: why the process is in its state.
    pub(crate) note: Option<String>,
    /// The session that it is about. Equal notes of one are shown once.
    #[serde(skip)]
    pub(crate) session: usize,
}

/// Writes an id as text: numbers of JavaScript have 53 bits.
pub(super) fn id<S: Serializer>(
    id: &(impl Copy + Into<Option<ProcessId>>),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let id: Option<ProcessId> = (*id).into();
    id.map(|id| id.to_string()).serialize(serializer)
}

/// A table, with all rows that there are.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
    /// The number of rows that are listed where they can't be scrolled, and their order there.
    pub(crate) most: usize,
    #[serde(skip)]
    usual: Order,
}

impl Table {
    /// Begins a table with a row for each item.
    pub(crate) fn of<R>(name: &'static str, items: impl IntoIterator<Item = R>) -> Builder<R> {
        let items: Vec<R> = items.into_iter().collect();
        let rows = items.iter().map(|_| Row::default()).collect();
        let (columns, most, usual) = (Vec::new(), usize::MAX, Order::Natural);
        Builder { items, table: Table { name, columns, rows, most, usual } }
    }

    /// Returns the rows of which a text has what the filter wants, sorted, each with its depth in
    /// the tree. Only all rows in their natural order are a tree.
    pub(crate) fn listed(&self, filter: &Filter, order: Order) -> Vec<(usize, &Row)> {
        let is_tree = filter.0.is_empty() && order == Order::Natural;
        let passes = |row: &&Row| {
            let mut texts = row.cells.iter().filter(|cell| cell.number.is_none());
            filter.0.is_empty()
                || texts.any(|cell| filter.passes(&cell.text))
                || row.note.as_ref().is_some_and(|note| filter.passes(note))
        };
        let rows = self.rows.iter().filter(passes);
        let mut rows: Vec<_> = rows.map(|row| (if is_tree { row.depth } else { 0 }, row)).collect();
        if order != Order::Natural {
            rows.sort_by(|(_, a), (_, b)| self.key(b, order).total_cmp(&self.key(a, order)));
        }
        rows
    }

    /// Returns the rows that are listed where they can't be scrolled.
    pub(crate) fn first(&self) -> impl Iterator<Item = (usize, &Row)> {
        self.listed(&Filter::default(), self.usual).into_iter().take(self.most)
    }

    fn key(&self, row: &Row, order: Order) -> f64 {
        let cells = self.columns.iter().zip(&row.cells);
        let cells = cells.filter(|(column, _)| column.order == Some(order));
        // The sum of no numbers is -0, which comes after 0.
        cells.filter_map(|(_, cell)| cell.number).fold(0.0, |sum, number| sum + number)
    }
}

/// A table that gets its columns one by one.
pub(crate) struct Builder<R> {
    items: Vec<R>,
    table: Table,
}

impl<R> Builder<R> {
    /// Adds a column of texts, which gets the room that is left, up to `most`.
    pub(crate) fn text(
        self,
        head: &'static str,
        least: usize,
        most: usize,
        cell: impl Fn(&R) -> Cell,
    ) -> Builder<R> {
        let width = (least, most);
        self.column(Column { head, is_figure: false, width, rank: 0, order: None }, cell)
    }

    /// Adds a column of statistics, which are aligned to the right.
    pub(crate) fn figure(
        self,
        head: &'static str,
        width: usize,
        rank: u8,
        cell: impl Fn(&R) -> Cell,
    ) -> Builder<R> {
        let width = (width, width);
        self.column(Column { head, is_figure: true, width, rank, order: None }, cell)
    }

    fn column(mut self, column: Column, cell: impl Fn(&R) -> Cell) -> Builder<R> {
        self.table.columns.push(column);
        self.rows(|item, row| row.cells.push(cell(item)))
    }

    /// Leaves the last column out before those with lower ranks.
    pub(crate) fn rank(mut self, rank: u8) -> Builder<R> {
        self.table.columns.last_mut().expect("there is a column").rank = rank;
        self
    }

    /// Makes the last column one by which an order sorts.
    pub(crate) fn order(mut self, order: Order) -> Builder<R> {
        self.table.columns.last_mut().expect("there is a column").order = Some(order);
        self
    }

    /// Changes the row of each item.
    pub(crate) fn rows(mut self, change: impl Fn(&R, &mut Row)) -> Builder<R> {
        let rows = self.items.iter().zip(&mut self.table.rows);
        rows.for_each(|(item, row)| change(item, row));
        self
    }

    /// Sets the number of rows that are listed where they can't be scrolled, and their order.
    pub(crate) fn lists(mut self, most: usize, usual: Order) -> Builder<R> {
        (self.table.most, self.table.usual) = (most, usual);
        self
    }

    pub(crate) fn done(self) -> Table {
        self.table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_filtered_by_texts_and_sorted_by_the_columns_of_an_order() {
        let items = [("one::step", 3, 1), ("two::step", 5, 2), ("three", 3, 8)];
        let table = Table::of("Functions", items)
            .text("FUNCTION", 8, 20, |(name, ..)| Cell::function(name))
            .figure("FAILED", 6, 0, |(_, failed, _)| Cell::failures(*failed))
            .order(Order::Failures)
            .figure("RESTARTS", 8, 0, |(.., restarts)| Cell::count(*restarts))
            .order(Order::Failures)
            .rows(|(name, ..), row| row.depth = name.len())
            .done();
        let listed = |filter: &str, order| -> Vec<(usize, String)> {
            let rows = table.listed(&Filter(filter.into()), order);
            rows.into_iter().map(|(depth, row)| (depth, row.cells[0].text.clone())).collect()
        };
        let names = |filter, order| listed(filter, order).into_iter().map(|(_, name)| name);
        let all: [(usize, String); 3] =
            [(9, "one::step".into()), (9, "two::step".into()), (5, "three".into())];
        assert_eq!(listed("", Order::Natural), all);
        assert_eq!(listed("STEP", Order::Natural)[0], (0, "one::step".into()));
        assert!(names("5", Order::Natural).next().is_none(), "numbers are not filtered");
        assert!(names("", Order::Failures).eq(["three", "two::step", "one::step"]));
        // No column is one of this order.
        assert!(names("", Order::Time).eq(["one::step", "two::step", "three"]));
    }
}
