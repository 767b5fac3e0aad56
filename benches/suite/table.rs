//! The table that a run of the benchmarks ends in: aligned for a terminal, and as the Markdown of
//! `docs/benchmarks.md`.
//!
//! A [`Row`] is a case: what fiber measured, what others measured beside it in the same run, and
//! the [`Target`]s that the ratio of the two is held against.

use std::fmt::{self, Write as _};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// A measured value with its unit, which writes itself for people.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Figure {
    /// Tasks, items or frames a second.
    Rate(f64),
    /// Bytes a second.
    Throughput(f64),
    /// A duration.
    Seconds(f64),
    /// An amount of memory.
    Bytes(f64),
    /// A number of things.
    Count(f64),
}

impl Figure {
    fn value(self) -> f64 {
        match self {
            Self::Rate(value)
            | Self::Throughput(value)
            | Self::Seconds(value)
            | Self::Bytes(value)
            | Self::Count(value) => value,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match *self {
            Self::Rate(value) => scaled(value, &[(1e6, " M/s"), (1e3, " k/s"), (1.0, " /s")]),
            Self::Throughput(value) => {
                scaled(value, &[(1e9, " GB/s"), (1e6, " MB/s"), (1.0, " B/s")])
            }
            Self::Seconds(value) => scaled(value, &[(1.0, " s"), (1e-3, " ms"), (1e-6, " µs")]),
            Self::Bytes(value) => {
                scaled(value, &[(1e9, " GB"), (1e6, " MB"), (1e3, " kB"), (1.0, " B")])
            }
            Self::Count(value) => format!("{value}"),
        };
        f.pad(&text)
    }
}

/// The value in the first unit that it fills, or in the last.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    // A value that rounds up to a whole unit is written in it: 1.00 k, not 1000.
    let fits = units.iter().find(|(size, _)| value >= size * 0.9995);
    let (size, name) = fits.or(units.last()).copied().unwrap_or((1.0, ""));
    significant(value / size) + name
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
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Target {
    /// At least so many times the other's figure, as for rates.
    AtLeast {
        /// How many times.
        times: f64,
        /// The name of the other, as given to [`Row::beside`].
        other: String,
        /// How many times would please more.
        aim: Option<f64>,
    },
    /// At most so many times the other's figure, as for durations.
    AtMost {
        /// How many times.
        times: f64,
        /// The name of the other, as given to [`Row::beside`].
        other: String,
        /// How many times would please more.
        aim: Option<f64>,
    },
    /// At most so much, whatever others need.
    Below(Figure),
    /// At least so much, whatever others reach.
    Above(Figure),
}

impl Target {
    /// At least `times` the figure of `other`.
    pub(crate) fn at_least(times: f64, other: impl Into<String>) -> Self {
        Self::AtLeast { times, other: other.into(), aim: None }
    }

    /// At most `times` the figure of `other`.
    pub(crate) fn at_most(times: f64, other: impl Into<String>) -> Self {
        Self::AtMost { times, other: other.into(), aim: None }
    }

    /// With an aim beyond the target, which the table names and nothing fails on.
    pub(crate) fn aim(mut self, better: f64) -> Self {
        match &mut self {
            Self::AtLeast { aim, .. } | Self::AtMost { aim, .. } => *aim = Some(better),
            Self::Below(_) | Self::Above(_) => {}
        }
        self
    }

    fn other(&self) -> Option<&str> {
        match self {
            Self::AtLeast { other, .. } | Self::AtMost { other, .. } => Some(other),
            Self::Below(_) | Self::Above(_) => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, times, other, aim) = match self {
            Self::AtLeast { times, other, aim } => ('≥', times, other, aim),
            Self::AtMost { times, other, aim } => ('≤', times, other, aim),
            Self::Below(figure) => return write!(f, "≤ {figure}"),
            Self::Above(figure) => return write!(f, "≥ {figure}"),
        };
        write!(f, "{sign} {times} × {other}")?;
        match aim {
            Some(aim) => write!(f, " (aim {aim})"),
            None => Ok(()),
        }
    }
}

/// Whether a row's targets are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All are.
    Reached,
    /// At least one is not.
    Missed,
    /// The run has no figure to compare with.
    Unknown,
    /// There is no target: the figure is for information.
    Reported,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Reached => "yes",
            Self::Missed => "NO",
            Self::Unknown => "?",
            Self::Reported => "",
        })
    }
}

/// One case of the benchmarks.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    case: String,
    fiber: Figure,
    others: Vec<(String, Figure)>,
    targets: Vec<Target>,
    notes: Vec<String>,
}

impl Row {
    /// A case, and what fiber measured.
    pub(crate) fn new(case: impl Into<String>, fiber: Figure) -> Self {
        Self {
            case: case.into(),
            fiber,
            others: Vec::new(),
            targets: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds the figure of `other` in the same case: a library, or `bare`.
    pub(crate) fn beside(mut self, other: impl Into<String>, figure: Figure) -> Self {
        self.others.push((other.into(), figure));
        self
    }

    /// Sets a figure that fiber has to reach.
    pub(crate) fn target(mut self, target: Target) -> Self {
        self.targets.push(target);
        self
    }

    /// A sentence below the table.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Whether the targets are reached, all taken together.
    pub(crate) fn verdict(&self) -> Verdict {
        let verdicts: Vec<_> = self.targets.iter().map(|target| self.judge(target)).collect();
        // A miss counts for more than a gap, and a gap for more than a hit.
        [Verdict::Missed, Verdict::Unknown, Verdict::Reached]
            .into_iter()
            .find(|verdict| verdicts.contains(verdict))
            .unwrap_or(Verdict::Reported)
    }

    fn judge(&self, target: &Target) -> Verdict {
        let held = match target {
            Target::AtLeast { times, other, .. } => self.ratio(other).map(|ratio| ratio >= *times),
            Target::AtMost { times, other, .. } => self.ratio(other).map(|ratio| ratio <= *times),
            Target::Below(figure) => Some(self.fiber.value() <= figure.value()),
            Target::Above(figure) => Some(self.fiber.value() >= figure.value()),
        };
        match held {
            Some(true) => Verdict::Reached,
            Some(false) => Verdict::Missed,
            None => Verdict::Unknown,
        }
    }

    /// fiber's figure over that of `other`.
    pub(crate) fn ratio(&self, other: &str) -> Option<f64> {
        self.figure(other).map(|figure| self.fiber.value() / figure.value())
    }

    fn figure(&self, other: &str) -> Option<Figure> {
        self.others.iter().find(|(name, _)| name == other).map(|(_, figure)| *figure)
    }

    /// The ratio to each that a target names, or to all where there is no target.
    fn ratios(&self) -> String {
        let mut named: Vec<&str> = self.targets.iter().filter_map(Target::other).collect();
        if self.targets.is_empty() {
            named = self.others.iter().map(|(name, _)| name.as_str()).collect();
        }
        let texts = named
            .iter()
            .filter_map(|name| Some(format!("{} × {name}", significant(self.ratio(name)?))));
        texts.collect::<Vec<_>>().join("; ")
    }

    fn goals(&self) -> String {
        self.targets.iter().map(Target::to_string).collect::<Vec<_>>().join("; ")
    }
}

/// Where and when a run was made.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    cores: usize,
    processor: String,
    kernel: String,
    date: String,
    versions: Vec<(String, String)>,
}

impl Machine {
    /// This machine, today.
    pub(crate) fn here() -> Self {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus
            .lines()
            .find(|line| line.starts_with("model name"))
            .and_then(|line| line.split(": ").nth(1));
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: model.unwrap_or(std::env::consts::ARCH).to_owned(),
            kernel: read_line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into()),
            date: today(),
            versions: vec![("fiber".into(), env!("CARGO_PKG_VERSION").into())],
        }
    }

    /// Names the version of something that was measured. Said twice it counts once.
    pub(crate) fn version(&mut self, of: impl Into<String>, version: impl Into<String>) {
        let named = (of.into(), version.into());
        if !self.versions.contains(&named) {
            self.versions.push(named);
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cores, processor, kernel, date, versions } = self;
        let system = std::env::consts::OS;
        write!(f, "{cores} cores ({processor}), {system} {kernel}, {date};")?;
        for (index, (name, version)) in versions.iter().enumerate() {
            write!(f, "{} {name} {version}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

fn read_line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The date in UTC, as 2026-11-21.
fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    date_of((since.as_secs() / 86_400) as i64)
}

/// The civil date of a day counted from 1970-01-01, after Howard Hinnant's `civil_from_days`.
fn date_of(days: i64) -> String {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// All that a run measured.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    machine: Machine,
    rows: Vec<Row>,
}

impl Table {
    /// A table without rows.
    pub(crate) fn new(machine: Machine) -> Self {
        Self { machine, rows: Vec::new() }
    }

    /// Where the run was made, to name more versions.
    pub(crate) fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// Adds a case.
    pub(crate) fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Prints the table to stdout, aligned.
    pub(crate) fn print(&self) {
        print!("{}", self.to_text());
    }

    /// The table for a terminal: ratios first, notes last.
    pub(crate) fn to_text(&self) -> String {
        let mut lines = vec![self.head(&["case", "ratio", "target", "reached"])];
        lines.extend(self.rows.iter().map(|row| {
            let judged = [row.case.clone(), row.ratios(), row.goals(), row.verdict().to_string()];
            judged.into_iter().chain(self.figures(row)).collect()
        }));
        let mut text = format!("{}\n\n{}", self.machine, aligned(&lines));
        for (case, note) in self.notes() {
            let _ = write!(text, "\n{case}: {note}");
        }
        text.push('\n');
        text
    }

    /// The page `docs/benchmarks.md`: the ratios, then the figures that they come from, then the
    /// notes.
    pub(crate) fn to_markdown(&self) -> String {
        let judged = self.rows.iter().map(|row| {
            let reached = if row.verdict() == Verdict::Missed {
                "**no**".into()
            } else {
                row.verdict().to_string()
            };
            vec![row.case.clone(), row.ratios(), row.goals(), reached]
        });
        let judged: Vec<_> = [self.words(&["case", "ratio", "target", "reached"])]
            .into_iter()
            .chain(judged)
            .collect();
        let figures = self
            .rows
            .iter()
            .map(|row| [anchored(&row.case)].into_iter().chain(self.figures(row)).collect());
        let figures: Vec<_> = [self.head(&["case"])].into_iter().chain(figures).collect();

        let mut page = format!(
            "# Benchmarks\n\n\
             `make bench` measures fiber beside Python's multiprocessing and beside bare sockets, \
             threads and nng, each case\n\
             one after the other in the same run, and writes this page. `make bench-all` adds Ray, \
             Dask and joblib. The cases\n\
             are in `benches/suite`, those of the peers in `benches/peers`.\n\n\
             Measured on {}.\n\n\
             ## Ratios\n\n\
             fiber's figure over that of the other: for rates more is better, for durations less.\n\n\
             {}\n\
             ## Figures\n\n{}",
            self.machine,
            markdown(&judged),
            markdown(&figures),
        );
        let mut notes = self.notes().peekable();
        if notes.peek().is_some() {
            page.push_str("\n## Notes\n\n");
        }
        for (case, note) in notes {
            let _ = writeln!(page, "- **{case}**: {note}");
        }
        page
    }

    /// Writes [`Table::to_markdown`] to a file.
    pub(crate) fn write_markdown(&self, path: &Path) -> io::Result<()> {
        fs::write(path, self.to_markdown())
    }

    /// Each other that some row names, in the order of their first appearance.
    fn others(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for (name, _) in self.rows.iter().flat_map(|row| &row.others) {
            if !names.contains(&name.as_str()) {
                names.push(name.as_str());
            }
        }
        names
    }

    fn words(&self, words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn head(&self, first: &[&str]) -> Vec<String> {
        let mut head = self.words(first);
        head.push("fiber".into());
        head.extend(self.others().into_iter().map(String::from));
        head
    }

    fn figures(&self, row: &Row) -> impl Iterator<Item = String> {
        let others = self
            .others()
            .into_iter()
            .map(|name| row.figure(name).map_or("–".into(), |f| f.to_string()));
        [row.fiber.to_string()].into_iter().chain(others).collect::<Vec<_>>().into_iter()
    }

    fn notes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.rows
            .iter()
            .flat_map(|row| row.notes.iter().map(|note| (row.case.as_str(), note.as_str())))
    }
}

/// Columns as wide as their widest cell, the head underlined.
fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            lines
                .iter()
                .filter_map(|line| line.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
        if index == 0 {
            let rules = widths.iter().map(|width| "─".repeat(*width));
            text.push_str(&rules.collect::<Vec<_>>().join("  "));
            text.push('\n');
        }
    }
    text
}

/// Returns the name of a case as the target of links: `#a-killed-worker-s-replacement-at-work`.
fn anchored(case: &str) -> String {
    let plain = case.to_lowercase().replace('µ', "u");
    let words = plain.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    format!(r#"<a id="{}"></a>{case}"#, words.collect::<Vec<_>>().join("-"))
}

fn markdown(lines: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let _ = writeln!(text, "| {} |", line.join(" | "));
        if index == 0 {
            let _ = writeln!(text, "|{}", "---|".repeat(line.len()));
        }
    }
    text
}
