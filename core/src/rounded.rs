//! Measured times in messages.

use std::time::Duration;

use humantime::FormattedDuration;

/// Returns a time as a reader wants it: without the digits that say nothing.
pub fn rounded(time: Duration) -> FormattedDuration {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let unit = match nanos {
        0..1_000_000 => 1_000,
        1_000_000..1_000_000_000 => 1_000_000,
        1_000_000_000..10_000_000_000 => 100_000_000,
        _ => 1_000_000_000,
    };
    let rounded = Duration::from_nanos(nanos.saturating_add(unit / 2) / unit * unit);
    humantime::format_duration(rounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_time_has_few_digits() {
        let shown = |nanos| rounded(Duration::from_nanos(nanos)).to_string();
        assert_eq!(shown(0), "0s");
        assert_eq!(shown(12_345), "12us");
        assert_eq!(shown(387_237_660), "387ms");
        assert_eq!(shown(1_549_999_999), "1s 500ms");
        assert_eq!(shown(75_600_000_000), "1m 16s");
        rounded(Duration::MAX);
    }
}
