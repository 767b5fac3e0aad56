//! The options of `sbatch` that users write, told apart as `sbatch` tells them: long names by any
//! prefix, letters in bundles, values attached to either.

/// The letters that have a long name which fiber looks for.
const LETTERS: [(char, &str); 7] = [
    ('D', "chdir"),
    ('J', "job-name"),
    ('W', "wait"),
    ('a', "array"),
    ('c', "cpus-per-task"),
    ('n', "ntasks"),
    ('s', "oversubscribe"),
];
/// The letters without a value: another letter may follow.
const FLAGS: &str = "HIOQVWhksuv";

/// Returns the value that a word gives the option with this long name.
pub(super) fn value<'a>(word: &'a str, name: &str) -> Option<&'a str> {
    if !sets(word, name) {
        return None;
    }
    match word.strip_prefix("--") {
        Some(long) => long.split_once('=').map(|(_, value)| value),
        None => word[1..].split_once(|letter| !FLAGS.contains(letter)).map(|(_, value)| value),
    }
}

/// Returns whether a word may set the option with this long name. A prefix that several options
/// share, which `sbatch` refuses, counts for each of them.
pub(super) fn sets(word: &str, name: &str) -> bool {
    if let Some(long) = word.strip_prefix("--") {
        let given = long.split(['=', ' ']).next().unwrap_or_default();
        return !given.is_empty() && name.starts_with(given);
    }
    let Some(letters) = word.strip_prefix('-') else { return false };
    let value = letters.find(|letter| !FLAGS.contains(letter));
    let end = value
        .map_or(letters.len(), |at| at + letters[at..].chars().next().map_or(0, char::len_utf8));
    letters[..end].chars().any(|letter| LETTERS.contains(&(letter, name)))
}

/// Returns the first of these names, each with something about it, that a word may set.
pub(super) fn find<'a, T>(word: &str, names: &'a [(&'a str, T)]) -> Option<&'a (&'a str, T)> {
    names.iter().find(|(name, _)| sets(word, name))
}

#[cfg(test)]
mod tests {
    use super::{sets, value};

    #[test]
    fn an_option_is_found_in_each_form() {
        for word in
            ["--array=1-3", "--array 1-3", "--arr=1-3", "-a1-3", "-a 1-3", "-a", "-Qa1-3", "-HQa=1"]
        {
            assert!(sets(word, "array"), "{word}");
        }
        for word in ["-W", "-QW", "-WH", "--wait", "--wai"] {
            assert!(sets(word, "wait"), "{word}");
        }
        for (word, name) in
            [("-c4", "cpus-per-task"), ("-n4", "ntasks"), ("-Hn4", "ntasks"), ("-Jx", "job-name")]
        {
            assert!(sets(word, name), "{word}");
        }
    }

    #[test]
    fn a_value_is_found_in_each_form() {
        for word in ["--chdir=/a b", "--chd=/a b", "-D/a b", "-QD/a b"] {
            assert_eq!(value(word, "chdir"), Some("/a b"), "{word}");
        }
        assert_eq!(value("--constraint=D", "chdir"), None);
        assert_eq!(value("-CD", "chdir"), None);
        assert_eq!(value("--chdir", "chdir"), None);
    }

    #[test]
    fn values_and_other_options_are_no_such_option() {
        for word in ["-pa", "-wWa1", "--account=a", "-A", "--acctg-freq=1", "--", "-", "a", ""] {
            assert!(!sets(word, "array"), "{word}");
        }
        assert!(!sets("--wait-all-nodes=1", "wait"));
        assert!(!sets("-waW", "wait"));
        assert!(!sets("-pé", "array"));
        assert!(!sets("-é", "array"));
    }
}
