//! Names that people type.

/// The one of `known` that `wanted` was probably meant to be.
pub(crate) fn closest<'a>(
    wanted: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let likeness = |name: &str| strsim::jaro_winkler(wanted, name);
    let best = known
        .into_iter()
        .map(|name| (likeness(name), name))
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(likeness, _)| *likeness > 0.8).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::closest;

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        let known = ["fiber-e3ae700b", "fiber-00112233"];
        assert_eq!(closest("fiber-e3ae700c", known), Some("fiber-e3ae700b"));
        assert_eq!(closest("mailbox", known), None);
        assert_eq!(closest("fiber", []), None);
    }
}
