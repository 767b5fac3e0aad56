//! Statistics as people read them: at most six characters where columns are narrow.

use std::time::{Duration, SystemTime};

/// Returns a number of things: `999`, `12.3k`, `3.0M`.
pub(crate) fn count(number: impl Into<f64>) -> String {
    // The sum of no numbers is -0.
    let number = number.into() + 0.0;
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    // 999,950 would be 1000.0k.
    match units.into_iter().find(|(unit, _)| number >= *unit * 0.99995) {
        Some((unit, name)) => format!("{:.1}{name}", number / unit),
        None => format!("{number:.0}"),
    }
}

/// Returns a number of things.
pub(crate) fn whole(number: u64) -> String {
    count(number as f64)
}

/// Returns two numbers of which the second is rarely above 0: `12`, `12+340`.
pub(crate) fn both(number: u64, other: u64) -> String {
    match other {
        0 => whole(number),
        other => format!("{}+{}", whole(number), whole(other)),
    }
}

/// Returns a number of things in a second: `0.3`, `30`, `12.3k`.
pub(crate) fn rate(number: f64) -> String {
    if (0.05..9.95).contains(&number) { format!("{number:.1}") } else { count(number) }
}

/// Returns an amount of memory: `31.0M`, with powers of 1024.
pub(crate) fn bytes(bytes: u64) -> String {
    let bytes = bytes as f64;
    let units = [(4, "T"), (3, "G"), (2, "M"), (1, "K")];
    match units.into_iter().find(|(power, _)| bytes >= 1024_f64.powi(*power) * 0.99995) {
        Some((power, name)) => format!("{:.1}{name}", bytes / 1024_f64.powi(power)),
        None => format!("{bytes:.0}B"),
    }
}

/// Returns a duration: `50us`, `1.2ms`, `41.0s`, `3h05m`.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match duration.as_secs() {
        0 if seconds < 1e-6 => format!("{}ns", duration.as_nanos()),
        0 if seconds < 1e-3 => format!("{:.0}us", seconds * 1e6),
        0 => format!("{:.1}ms", seconds * 1e3),
        1..60 => format!("{seconds:.1}s"),
        whole @ 60..3600 => format!("{}m{:02}s", whole / 60, whole % 60),
        whole @ 3600..86400 => format!("{}h{:02}m", whole / 3600, whole % 3600 / 60),
        whole => format!("{}d{:02}h", whole / 86400, whole % 86400 / 3600),
    }
}

/// Returns the time from `since` to `now`.
pub(crate) fn age(since: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(since).unwrap_or_default()
}

/// Returns a share: `37%`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// Returns a number of things with its noun: `1 worker`, `2 workers`, `3 processes`.
pub(crate) fn plural(number: usize, noun: &str) -> String {
    let ending = match number {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {noun}{ending}")
}

/// Returns the last name of a function's path, and the file and line of a closure.
pub(crate) fn last(function: &str) -> &str {
    let (text, separator) = place(function).map_or((function, "::"), |place| (place, "/"));
    text.rsplit(separator).next().unwrap_or(text)
}

/// Returns the file and line of a closure: see `Entry::display_name`.
pub(crate) fn place(function: &str) -> Option<&str> {
    function.rsplit_once("::{closure@")?.1.strip_suffix('}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(count(-0.0), "0");
        let counts = [0, 999, 1_000, 12_345, 999_999, 3_000_000, u64::MAX].map(whole);
        assert_eq!(counts, ["0", "999", "1.0k", "12.3k", "1.0M", "3.0M", "18446744.1T"]);
        let sizes = [0, 1023, 1024, 31 << 20, (1 << 30) - 1, 5 << 40].map(bytes);
        assert_eq!(sizes, ["0B", "1023B", "1.0K", "31.0M", "1.0G", "5.0T"]);
        let spans = [30, 50_000, 1_234_000, 41_000_000_000, 185_000_000_000, 11_100_000_000_000];
        assert_eq!(
            spans.map(|nanos| span(Duration::from_nanos(nanos))),
            ["30ns", "50us", "1.2ms", "41.0s", "3m05s", "3h05m"]
        );
        assert_eq!([both(12, 0), both(12, 3400)], ["12", "12+3.4k"]);
        assert_eq!([0.0, 0.3, 9.96, 30.0, 12_345.0].map(rate), ["0", "0.3", "10", "30", "12.3k"]);
        let nouns = [plural(1, "worker"), plural(2, "worker"), plural(3, "process")];
        assert_eq!(nouns, ["1 worker", "2 workers", "3 processes"]);
    }
}
