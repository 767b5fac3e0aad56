//! Amounts of memory as text, such as `512MiB`.

const UNITS: [(&str, u64); 10] = [
    ("B", 1),
    ("kB", 1000),
    ("KB", 1000),
    ("KiB", 1 << 10),
    ("MB", 1000u64.pow(2)),
    ("MiB", 1 << 20),
    ("GB", 1000u64.pow(3)),
    ("GiB", 1 << 30),
    ("TB", 1000u64.pow(4)),
    ("TiB", 1 << 40),
];

/// Parses an amount of memory into bytes. The error continues a sentence after "which".
pub(crate) fn bytes(text: &str) -> Result<u64, &'static str> {
    let text = text.trim();
    let digits = text.find(|symbol: char| !symbol.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err("does not begin with a whole number");
    }
    if unit.starts_with('.') {
        return Err("is a fraction: use a smaller unit");
    }
    let unit = unit.trim_start();
    if unit.is_empty() {
        return Err("has no unit");
    }
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or("has an unknown unit")?;
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*factor));
    bytes.ok_or("is more than 64 bits can count")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_has_its_factor() {
        for (text, expected) in [
            ("7B", 7),
            ("7kB", 7_000),
            ("7KB", 7_000),
            ("64KiB", 65_536),
            ("512MB", 512_000_000),
            ("512MiB", 536_870_912),
            ("2GB", 2_000_000_000),
            ("2GiB", 2_147_483_648),
            ("1TB", 1_000_000_000_000),
            ("1TiB", 1_099_511_627_776),
            (" 1 KiB ", 1024),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn the_largest_amount_fits_and_the_next_is_refused() {
        assert_eq!(bytes("18446744073709551615B"), Ok(u64::MAX));
        for text in ["18446744073709551616B", "16777216TiB"] {
            assert_eq!(bytes(text), Err("is more than 64 bits can count"), "{text}");
        }
    }

    #[test]
    fn malformed_text_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "whole number"),
            ("MiB", "whole number"),
            ("-1MiB", "whole number"),
            ("1.5GiB", "fraction"),
            ("512", "no unit"),
            ("512M", "unknown unit"),
            ("512mib", "unknown unit"),
            ("1KiB2", "unknown unit"),
            ("1é", "unknown unit"),
        ] {
            assert!(bytes(text).unwrap_err().contains(reason), "{text}");
        }
    }
}
