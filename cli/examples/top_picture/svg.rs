//! Screens of a terminal as an SVG that shows one after the other.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::num::NonZero;
use std::time::Duration;

use vt100::{Cell, Color, Parser};

use crate::{HEIGHT, WIDTH};

/// The size of a character, in pixels.
const CELL: (f64, f64) = (8.4, 18.0);
const MARGIN: f64 = 14.0;
/// The colors of a dark terminal: the sixteen of ANSI.
const COLORS: [&str; 16] = [
    "#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4",
    "#6e7681", "#ffa198", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#f0f6fc",
];
const FONTS: &str = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace";
const BACKGROUND: &str = "#0d1117";
const FOREGROUND: &str = "#c9d1d9";
/// How long the last screen stays, before the first comes again.
const PAUSE: Duration = Duration::from_secs(3);

/// The screen at one time: the SVG elements of each row.
pub(crate) struct Frame {
    at: Duration,
    pub(crate) rows: Vec<String>,
}

impl Frame {
    /// Reads a screen with its escape sequences.
    pub(crate) fn new(at: Duration, screen: &str) -> Frame {
        let size = |cells| NonZero::new(cells).expect("a terminal has cells");
        let mut parser = Parser::new(size(HEIGHT), size(WIDTH), 0);
        parser.process(screen.trim_end_matches('\n').replace('\n', "\r\n").as_bytes());
        let row = |row| row_of(parser.screen(), row);
        Frame { at, rows: (0..HEIGHT).map(row).collect() }
    }
}

/// Returns the texts of a row, one element for neighbours of one style.
fn row_of(screen: &vt100::Screen, row: u16) -> String {
    let mut elements = String::new();
    let mut column = 0;
    while column < WIDTH {
        let style = style_of(screen.cell(row, column));
        let start = column;
        let mut text = String::new();
        while column < WIDTH && style_of(screen.cell(row, column)) == style {
            let cell = screen.cell(row, column).map(Cell::contents);
            text += cell.filter(|text| !text.is_empty()).unwrap_or(" ");
            column += 1;
        }
        if !text.trim().is_empty() {
            element(&mut elements, (start, row), &text, &style);
        }
    }
    elements
}

fn element(elements: &mut String, (column, row): (u16, u16), text: &str, style: &str) {
    let shown = text.trim_end();
    let x = MARGIN + f64::from(column) * CELL.0;
    let y = MARGIN + (f64::from(row) + 0.75) * CELL.1;
    let length = shown.chars().count() as f64 * CELL.0;
    // Not all viewers keep plain spaces.
    let shown = shown.replace('&', "&amp;").replace('<', "&lt;").replace(' ', "\u{a0}");
    let _ = write!(
        elements,
        r#"<text x="{x:.1}" y="{y:.1}" textLength="{length:.1}"{style}>{shown}</text>"#
    );
}

/// Returns the attributes of a cell's text.
fn style_of(cell: Option<&Cell>) -> String {
    let Some(cell) = cell else { return String::new() };
    let mut style = match color(if cell.inverse() { cell.bgcolor() } else { cell.fgcolor() }) {
        Some(color) => format!(r#" fill="{color}""#),
        None => String::new(),
    };
    if cell.bold() {
        style += r#" font-weight="bold""#;
    }
    if cell.dim() {
        style += r#" opacity="0.6""#;
    }
    style
}

fn color(color: Color) -> Option<String> {
    match color {
        Color::Default => None,
        Color::Idx(index) => COLORS.get(usize::from(index)).map(ToString::to_string),
        Color::Rgb(red, green, blue) => Some(format!("#{red:02x}{green:02x}{blue:02x}")),
    }
}

/// Returns an SVG that shows each frame for as long as it was on the screen. `still` is the frame
/// for readers who turn animations off.
pub(crate) fn animation(frames: &[Frame], still: usize) -> String {
    let (first, last) = (&frames[0], &frames[frames.len() - 1]);
    let total = last.at - first.at + PAUSE;
    let percent = |frame: usize| {
        frames
            .get(frame)
            .map_or(100.0, |frame| (frame.at - first.at).div_duration_f64(total) * 100.0)
    };
    let (mut style, mut groups) = (String::new(), String::new());
    for ((from, to), elements) in lives(frames) {
        if (from, to) == (0, frames.len()) {
            groups += &elements;
            continue;
        }
        let _ = writeln!(
            style,
            "#f{from}-{to}{{opacity:{};animation:k{from}-{to} {:.1}s step-end infinite}}\n\
             @keyframes k{from}-{to}{{0%{{opacity:0}}{:.2}%{{opacity:1}}{:.2}%{{opacity:0}}}}",
            i32::from((from..to).contains(&still)),
            total.as_secs_f64(),
            percent(from),
            percent(to),
        );
        let _ = writeln!(groups, r#"<g id="f{from}-{to}">{elements}</g>"#);
    }
    let (width, height) =
        (MARGIN * 2.0 + f64::from(WIDTH) * CELL.0, MARGIN * 2.0 + f64::from(HEIGHT) * CELL.1);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\" height=\"{height:.0}\" font-family=\"{FONTS}\" font-size=\"14\" \
         fill=\"{FOREGROUND}\">\n\
         <title>fiber top, while a worker is killed</title>\n\
         <style>\n{style}@media (prefers-reduced-motion:reduce){{g{{animation:none!important}}}}\n\
         </style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n{groups}</svg>\n"
    )
}

/// Returns the rows of all frames, by the first frame that shows them and the one that no longer
/// does.
fn lives(frames: &[Frame]) -> BTreeMap<(usize, usize), String> {
    let mut lives: BTreeMap<(usize, usize), String> = BTreeMap::new();
    for row in 0..frames[0].rows.len() {
        let mut from = 0;
        for to in 1..=frames.len() {
            let elements = &frames[from].rows[row];
            if frames.get(to).is_none_or(|frame| frame.rows[row] != *elements) {
                if !elements.is_empty() {
                    *lives.entry((from, to)).or_default() += elements;
                }
                from = to;
            }
        }
    }
    lives
}
