//! Suggestions for mistyped names.

/// Returns the name of `known` that `wanted` is probably a mistyped form of.
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
    fn only_similar_names_are_suggested() {
        let known = ["fiber-e3ae700b", "fiber-00112233"];
        assert_eq!(closest("fiber-e3ae700c", known), Some("fiber-e3ae700b"));
        assert_eq!(closest("mailbox", known), None);
        assert_eq!(closest("fiber", []), None);
    }
}
