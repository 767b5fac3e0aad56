//! The text formats of Prometheus and OpenMetrics.

use std::fmt::Write;
use std::time::Duration;

use fiber_core::stats::Distribution;

use super::samples::{Samples, Value};
use super::table::{Kind, Metric};

/// The upper bounds of the buckets of histograms are these powers of 4 nanoseconds: 1 µs to 5 h. No
/// bucket of a [`Distribution`] has a power of 2 inside, so each one belongs to one bucket here.
const BOUNDS: std::ops::RangeInclusive<u32> = 5..=22;

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Prometheus,
    OpenMetrics,
}

impl Format {
    /// Returns the format that a client prefers, by the header `Accept`.
    pub(super) fn accepted(accept: &str) -> Format {
        let weight = |media: &str| {
            let ranges = accept.split(',').filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let matches = parts.next()?.eq_ignore_ascii_case(media);
                let weight = parts.find_map(|part| part.strip_prefix("q="));
                matches.then(|| weight.and_then(|weight| weight.parse().ok()).unwrap_or(1.0_f64))
            });
            ranges.fold(0.0, f64::max)
        };
        let open = weight("application/openmetrics-text");
        if open > 0.0 && open >= weight("text/plain") {
            Format::OpenMetrics
        } else {
            Format::Prometheus
        }
    }

    /// Returns the header `Content-Type`.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Writes the samples as a text.
pub(super) fn write(samples: &Samples, format: Format) -> String {
    let mut text = String::new();
    let mut last = None;
    for ((id, labels), value) in &samples.0 {
        let metric = id.metric();
        if last != Some(*id) {
            write_header(&mut text, metric, format);
            last = Some(*id);
        }
        let labels = metric.labels.iter().copied().zip(labels.iter().map(String::as_str));
        let labels: Vec<_> = labels.collect();
        match value {
            Value::Number(number) => line(&mut text, &metric.name(), &labels, None, *number),
            Value::Times(times) => write_histogram(&mut text, metric.family, &labels, times),
        }
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn write_header(text: &mut String, metric: &Metric, format: Format) {
    let full_name = metric.name();
    let (name, kind) = match (metric.kind, format) {
        (Kind::Gauge, _) => (full_name.as_str(), "gauge"),
        (Kind::Histogram, _) => (full_name.as_str(), "histogram"),
        (Kind::Counter, Format::Prometheus) => (full_name.as_str(), "counter"),
        (Kind::Counter, Format::OpenMetrics) => (metric.family, "counter"),
        (Kind::Info, Format::Prometheus) => (full_name.as_str(), "gauge"),
        (Kind::Info, Format::OpenMetrics) => (metric.family, "info"),
    };
    *text += &format!("# HELP {name} {}\n# TYPE {name} {kind}\n", metric.help);
    if let (Format::OpenMetrics, Some(unit)) = (format, metric.unit()) {
        *text += &format!("# UNIT {name} {unit}\n");
    }
}

fn write_histogram(text: &mut String, family: &str, labels: &Labels<'_>, times: &Distribution) {
    let bucket = format!("{family}_bucket");
    let mut filled = times.buckets().peekable();
    let mut below = 0;
    for power in BOUNDS {
        let bound = Duration::from_nanos(1 << (2 * power));
        while let Some((_, count)) = filled.next_if(|(longest, _)| *longest <= bound) {
            below += count;
        }
        let bound = bound.as_secs_f64().to_string();
        line(text, &bucket, labels, Some(&bound), below as f64);
    }
    line(text, &bucket, labels, Some("+Inf"), times.count() as f64);
    line(text, &format!("{family}_sum"), labels, None, times.sum().as_secs_f64());
    line(text, &format!("{family}_count"), labels, None, times.count() as f64);
}

/// The names and values of labels.
type Labels<'a> = [(&'static str, &'a str)];

/// Writes a line: the name, the labels, and the value.
fn line(text: &mut String, name: &str, labels: &Labels<'_>, bound: Option<&str>, value: f64) {
    let labels = labels.iter().copied().chain(bound.map(|bound| ("le", bound)));
    let labels: Vec<_> =
        labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    let labels =
        if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    writeln!(text, "{name}{labels} {value}").expect("a text takes all");
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
