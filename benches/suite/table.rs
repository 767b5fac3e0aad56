//! The table that a run of the benchmarks ends in. It is Markdown, as `docs/benchmarks.md` has it,
//! with columns that a terminal shows aligned.
//!
//! A [`Row`] is a case: what fiber measured, what others measured beside it in the same run, and
//! the targets that the figure or its ratio is held against.

use std::fmt;
use std::fs;

/// A measured value with its unit, which writes itself for people.
#[derive(Clone, Copy)]
pub(crate) enum Figure {
    /// Tasks, items or frames a second.
    Rate(f64),
    /// Bytes a second.
    Throughput(f64),
    /// A duration.
    Seconds(f64),
    /// An amount of memory.
    Bytes(f64),
}

impl Figure {
    fn value(self) -> f64 {
        match self {
            Self::Rate(value)
            | Self::Throughput(value)
            | Self::Seconds(value)
            | Self::Bytes(value) => value,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, units) = match *self {
            Self::Rate(value) => (value, [(1e6, "M/s"), (1e3, "k/s"), (1.0, "/s")]),
            Self::Throughput(value) => (value, [(1e9, "GB/s"), (1e6, "MB/s"), (1.0, "B/s")]),
            Self::Seconds(value) => (value, [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")]),
            Self::Bytes(value) => (value, [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")]),
        };
        // A value that rounds up to a whole unit is written in it: 1.00 k, not 1000.
        let fits = units.iter().find(|(size, _)| value >= size * 0.9995);
        let (size, unit) = fits.unwrap_or(&units[2]);
        write!(f, "{} {unit}", significant(value / size))
    }
}

/// Three significant digits, without exponents.
fn significant(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.9995 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The figure that fiber has to reach in a case.
enum Target {
    AtLeast(f64, String),
    AtMost(f64, String),
    Below(Figure),
    Above(Figure),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(times, other) => write!(f, "≥ {times} × {other}"),
            Self::AtMost(times, other) => write!(f, "≤ {times} × {other}"),
            Self::Below(figure) => write!(f, "≤ {figure}"),
            Self::Above(figure) => write!(f, "≥ {figure}"),
        }
    }
}

/// One case of the benchmarks.
pub(crate) struct Row {
    pub(crate) case: String,
    pub(crate) fiber: Figure,
    /// The figures of others in the same case.
    pub(crate) others: Vec<(String, Figure)>,
    targets: Vec<Target>,
    /// Sentences below the table.
    pub(crate) notes: Vec<String>,
}

impl Row {
    /// A case, and what fiber measured.
    pub(crate) fn new(case: impl Into<String>, fiber: Figure) -> Self {
        let case = case.into();
        Self { case, fiber, others: Vec::new(), targets: Vec::new(), notes: Vec::new() }
    }

    /// Adds the figure of `other` in the same case: a library, or `bare`.
    pub(crate) fn beside(mut self, other: impl Into<String>, figure: Figure) -> Self {
        self.others.push((other.into(), figure));
        self
    }

    /// Asks for at least `times` the figure of `other`, as for rates.
    pub(crate) fn at_least(self, times: f64, other: impl Into<String>) -> Self {
        self.target(Target::AtLeast(times, other.into()))
    }

    /// Asks for at most `times` the figure of `other`, as for durations.
    pub(crate) fn at_most(self, times: f64, other: impl Into<String>) -> Self {
        self.target(Target::AtMost(times, other.into()))
    }

    /// Asks for at most so much, whatever others need.
    pub(crate) fn below(self, figure: Figure) -> Self {
        self.target(Target::Below(figure))
    }

    /// Asks for at least so much, whatever others reach.
    pub(crate) fn above(self, figure: Figure) -> Self {
        self.target(Target::Above(figure))
    }

    fn target(mut self, target: Target) -> Self {
        self.targets.push(target);
        self
    }

    /// Adds a sentence below the table.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Returns whether a target is reached, if the run has the figure to compare with.
    fn reaches(&self, target: &Target) -> Option<bool> {
        match target {
            Target::AtLeast(times, other) => self.ratio(other).map(|ratio| ratio >= *times),
            Target::AtMost(times, other) => self.ratio(other).map(|ratio| ratio <= *times),
            Target::Below(figure) => Some(self.fiber.value() <= figure.value()),
            Target::Above(figure) => Some(self.fiber.value() >= figure.value()),
        }
    }

    /// Returns fiber's figure over that of `other`.
    fn ratio(&self, other: &str) -> Option<f64> {
        let (_, figure) = self.others.iter().find(|(name, _)| name == other)?;
        Some(self.fiber.value() / figure.value())
    }

    fn cells(&self) -> [String; 4] {
        let others = self.others.iter().map(|(name, figure)| {
            let ratio = significant(self.fiber.value() / figure.value());
            format!("{name} {figure} ({ratio} ×)")
        });
        let targets = self.targets.iter().filter_map(|target| {
            let missed = if self.reaches(target)? { "" } else { " **missed**" };
            Some(format!("{target}{missed}"))
        });
        let [others, targets] = [others.collect::<Vec<_>>(), targets.collect()];
        [self.case.clone(), self.fiber.to_string(), others.join("; "), targets.join("; ")]
    }
}

/// All that a run measured, and on what.
pub(crate) struct Table {
    machine: String,
    /// What was measured, each with its version.
    pub(crate) versions: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

impl Table {
    /// Makes a table of this machine, without rows.
    pub(crate) fn new() -> Self {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let model = model.map_or(std::env::consts::ARCH, |(_, model)| model);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let machine = format!("{cores} cores ({model}), Linux {}", kernel.trim());
        let versions = vec![format!("fiber {}", env!("CARGO_PKG_VERSION"))];
        Self { machine, versions, rows: Vec::new() }
    }

    /// Adds a case.
    pub(crate) fn push(&mut self, row: Row) {
        self.rows.push(row);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Measured on {}; {}.\n", self.machine, self.versions.join(", "))?;
        let mut lines = vec![["case", "fiber", "beside", "bar"].map(String::from)];
        lines.extend(self.rows.iter().map(Row::cells));
        let widths = [0, 1, 2, 3].map(|column| {
            let cells = lines.iter().map(|line| line[column].chars().count());
            cells.max().unwrap_or(0)
        });
        lines.insert(1, widths.map(|width| "-".repeat(width)));
        for line in &lines {
            for (cell, width) in line.iter().zip(widths) {
                write!(f, "| {cell:<width$} ")?;
            }
            writeln!(f, "|")?;
        }
        writeln!(f)?;
        let noted = self.rows.iter().flat_map(|row| row.notes.iter().map(|note| (&row.case, note)));
        noted.into_iter().try_for_each(|(case, note)| writeln!(f, "- **{case}**: {note}"))
    }
}
