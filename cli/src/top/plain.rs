//! One look at sessions as plain text, for scripts and terminals that can't be drawn on.

use std::collections::HashSet;

use crate::journal::new_table;
use crate::model::Model;
use crate::model::table::{Cell, Cut, Table};
use crate::terminal::column;

/// Describes a session. `name` is that of its head.
pub(crate) fn session(name: &str, model: &Model) -> String {
    let stats = &model.stats;
    let summary = model.whole_summary().join(", ");
    let mut text = format!("{} ({name}, {}): {summary}\n", stats.program, stats.backend);
    model.notices.iter().for_each(|(_, line)| text += &format!("{line}\n"));
    for table in model.tables().into_iter().filter(|table| !table.rows.is_empty()) {
        text += &format!("\n{}\n", self::table(table));
        match table.rows.len().saturating_sub(table.most) {
            0 => {}
            more => text += &format!(" {more} more\n"),
        }
    }
    text
}

/// Draws a table with as many rows as a look lists. A note stands below the last row of its session
/// that has it.
pub(crate) fn table(table: &Table) -> String {
    let mut drawn = new_table(&table.columns.iter().map(|column| column.head).collect::<Vec<_>>());
    let text = |cell: &Cell| match cell.cut {
        Cut::Never => cell.text.clone(),
        _ => column(&cell.text),
    };
    let rows: Vec<_> = table.first().collect();
    let mut heights = Vec::with_capacity(rows.len());
    for (depth, row) in &rows {
        let mut cells: Vec<String> = row.cells.iter().map(text).collect();
        cells[0].insert_str(0, &"  ".repeat(*depth));
        heights.push(cells.iter().map(|cell| cell.split('\n').count()).max().unwrap_or(1));
        drawn.add_row(cells);
    }
    let mut noted = HashSet::new();
    let notes = rows.iter().rev().map(|(depth, row)| {
        let note = row.note.as_deref().filter(|note| noted.insert((row.session, *note)));
        let lines = note.into_iter().flat_map(str::lines);
        lines.map(|line| format!("{}   {line}", "  ".repeat(*depth))).collect::<Vec<_>>()
    });
    let notes: Vec<Vec<String>> = notes.collect();
    let mut lines = drawn.lines().map(|line| line.trim_end().to_string());
    let mut shown: Vec<String> = lines.by_ref().take(1).collect();
    for (height, notes) in heights.into_iter().zip(notes.into_iter().rev()) {
        shown.extend(lines.by_ref().take(height).chain(notes));
    }
    shown.join("\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fiber_core::stats::ProcessState;

    use super::*;
    use crate::inspect::testing::{service, stats};

    #[test]
    fn a_look_lists_all_tables_that_have_rows() {
        let mut stats = stats("simulate", 3);
        stats.report.processes[3].state = ProcessState::Waiting("no room".into());
        let text = session("pid 4001", &Model::new(&Arc::new(stats), None));
        for shown in [
            "simulate (pid 4001, local): up 3h05m, 4 processes, 12.3k tasks/s, 50.0M PSS",
            " squares  3/3 ",
            "!41.0s    simulate::step  124    worker-1",
            "   squares/worker-3 (waiting) ",
            "\n     waiting: no room\n",
            "squares/worker-2 (pid 3999) was killed by signal 9",
        ] {
            assert!(text.contains(shown), "`{shown}` is missing in:\n{text}");
        }
        assert!(!text.contains("ACTOR"), "{text}");
    }

    #[test]
    fn a_look_lists_the_busiest_actors() {
        let mut stats = stats("bank", 0);
        stats.report.pools.clear();
        service(&mut stats, 25);
        let text = session("pid 4001", &Model::new(&Arc::new(stats), None));
        let shown = [
            "26 processes, 32.5k messages/s, ",
            "teller-25  bank::teller::Teller  2.5k ",
            "5 more",
        ];
        for shown in shown {
            assert!(text.contains(shown), "`{shown}` is missing in:\n{text}");
        }
        assert!(!text.contains("till-1"), "{text}");
    }
}
