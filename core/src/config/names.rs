//! The names of all options, for errors about those that don't exist.

use super::section::entries;
use super::{ConfigSource, GROUPS};

/// Returns the names that a source may have in place of `option`: the keys of its section, or all.
pub(super) fn alternatives(source: &ConfigSource, option: &str) -> Vec<String> {
    let of_section = |name: &str| entries().find(|entry| entry.name == name);
    if let Some(entry) = option.split_once('.').and_then(|(section, _)| of_section(section)) {
        return entry.keys.iter().map(|key| source.spell(&entry.option(key.name))).collect();
    }
    let options = GROUPS.iter().flat_map(|(_, options)| *options);
    let of_sections = entries()
        .flat_map(|entry| entry.keys.iter().map(move |key| source.spell(&entry.option(key.name))));
    options.map(|option| source.spell(option.name)).chain(of_sections).collect()
}

/// Returns the name that was probably meant by another one.
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = names.into_iter().min_by_key(|other| edits(name, other))?;
    (3 * edits(name, near) <= name.len()).then_some(near)
}

/// Returns how many characters have to be added, removed or replaced to make one text the other.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, have) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, want) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(have != *want);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (from, to, count) in
            [("", "", 0), ("a", "", 1), ("ab", "ba", 2), ("kitten", "sitting", 3), ("x", "x", 0)]
        {
            assert_eq!(edits(from, to), count, "{from} {to}");
            assert_eq!(edits(to, from), count, "{to} {from}");
        }
    }

    #[test]
    fn only_a_similar_name_is_near() {
        let names = ["heartbeat", "link"];
        assert_eq!(nearest("heart_beat", names), Some("heartbeat"));
        assert_eq!(nearest("timeline", names), None);
        assert_eq!(nearest("timeline", []), None);
    }
}
