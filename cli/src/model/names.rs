//! The names of actors, the groups and the topics.

use fiber_core::stats::{NameKind, Report};

/// How many names a line has.
const SHOWN: usize = 8;

/// Returns a line with the names of actors, the groups with their numbers of members, and the topics
/// with those of their subscriptions. `None` if there are none.
pub(super) fn line(report: &Report) -> Option<String> {
    let shown = report.names.iter().take(SHOWN).map(|one| match one.kind {
        NameKind::Group => format!("group {} ({})", one.name, one.members),
        NameKind::Topic => format!("topic {} ({})", one.name, one.members),
        _ => one.name.clone(),
    });
    let mut shown: Vec<_> = shown.collect();
    let more = report.names.len().saturating_sub(SHOWN);
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    (!shown.is_empty()).then(|| format!("names: {}", shown.join(", ")))
}

#[cfg(test)]
mod tests {
    use fiber_core::stats::NameStats;

    use super::*;
    use crate::inspect::testing::stats;

    #[test]
    fn a_line_has_the_first_names_and_groups() {
        let mut report = stats("crawl", 2).report;
        assert_eq!(line(&report), None);
        let mut add = |name: &str, kind, members| {
            report.names.push(NameStats::new(name.into(), kind, "crawl::Frontier".into(), members));
        };
        add("frontier", NameKind::Name, 1);
        add("fetchers", NameKind::Group, 12);
        add("prices", NameKind::Topic, 3);
        (0..8).for_each(|number| add(&format!("user-{number}"), NameKind::Name, 1));
        let line = line(&report).unwrap();
        assert!(
            line.starts_with("names: frontier, group fetchers (12), topic prices (3), user-0, "),
            "{line}"
        );
        assert!(line.ends_with("user-4, 3 more"), "{line}");
    }
}
