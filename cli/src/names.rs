//! The names by which a command line calls sessions and their processes.
//!
//! A session has the name that `fiber ps` shows: `pid 4711`, or that of its job. A process has its
//! path below the head, as in `fiber top`: `pool-1/worker-2`, `pool-1/host-1`. With that of its
//! session in front it is unique: `my-program/pool-1/worker-2`. What an engine calls a process,
//! such as a container, names it, too. The beginning of a name is enough if it is the beginning of
//! one only; sessions take precedence over processes, whose names may begin with a session's.

use anyhow::bail;
use fiber_core::nearest;

/// Something that has names.
#[derive(Clone, Debug)]
pub(crate) struct Entry<T> {
    names: Vec<String>,
    /// The name for messages, which no other one has.
    shown: String,
    is_session: bool,
    pub(crate) meant: T,
}

impl<T> Entry<T> {
    /// Returns the entry of a session.
    pub(crate) fn session(names: &[String], shown: String, meant: T) -> Entry<T> {
        Entry { names: names.to_vec(), shown, is_session: true, meant }
    }

    /// Returns the entry of a process with this path, in a session that has these names.
    pub(crate) fn process(sessions: &[String], path: &str, job: Vec<String>, meant: T) -> Entry<T> {
        let mut names = vec![path.to_string()];
        names.extend(sessions.iter().map(|session| format!("{session}/{path}")));
        names.extend(job);
        let shown = match sessions {
            [session, ..] => format!("{session}/{path}"),
            [] => path.to_string(),
        };
        Entry { names, shown, is_session: false, meant }
    }
}

/// Returns what a name means.
///
/// # Errors
/// It means nothing, or may be one of several. `note` says what may be unknown.
pub(crate) fn choose<'a, T>(
    entries: &'a [Entry<T>],
    name: &str,
    note: &str,
) -> anyhow::Result<&'a T> {
    if let Some(found) = choose_certain(entries, name)? {
        return Ok(found);
    }
    let beginnings = entries.iter().filter(|entry| entry.begins_with(name));
    if let Some(found) = the_only(name, beginnings)? {
        return Ok(found);
    }
    let known = entries.iter().flat_map(|entry| &entry.names).map(String::as_str);
    match nearest(name, known) {
        Some(other) => bail!("there is no session or process `{name}`: did you mean `{other}`?"),
        None => bail!(
            "there is no session or process `{name}`: `fiber ps` and `fiber top` list all{note}"
        ),
    }
}

/// Returns what a name means that is a whole one, or the beginning of a session's; `None` if it may
/// mean something that is not among these entries.
///
/// # Errors
/// It may be one of several.
pub(crate) fn choose_certain<'a, T>(
    entries: &'a [Entry<T>],
    name: &str,
) -> anyhow::Result<Option<&'a T>> {
    let is = |entry: &&Entry<T>| entry.names.iter().any(|known| known == name);
    let begins = |entry: &&Entry<T>| entry.begins_with(name);
    let session = |entry: &&Entry<T>| entry.is_session;
    for found in [
        entries.iter().filter(session).filter(is).collect::<Vec<_>>(),
        entries.iter().filter(is).collect(),
        entries.iter().filter(session).filter(begins).collect(),
    ] {
        if let Some(found) = the_only(name, found.into_iter())? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

impl<T> Entry<T> {
    /// Returns the entry with another meaning.
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Entry<U> {
        let Entry { names, shown, is_session, meant } = self;
        Entry { names, shown, is_session, meant: change(meant) }
    }

    fn begins_with(&self, name: &str) -> bool {
        !name.is_empty() && self.names.iter().any(|known| known.starts_with(name))
    }
}

/// Returns the only one of these entries, if there is any.
fn the_only<'a, T: 'a>(
    name: &str,
    found: impl Iterator<Item = &'a Entry<T>>,
) -> anyhow::Result<Option<&'a T>> {
    match found.collect::<Vec<_>>().as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(&one.meant)),
        [first, second, rest @ ..] => bail!(
            "`{name}` may be any of {}, among them {} and {}: type more of it, or the pid",
            rest.len() + 2,
            first.shown,
            second.shown
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_named_by_its_path_its_session_and_its_job() {
        let sessions = |name: &str| vec![name.to_string()];
        let entries = [
            Entry::session(&sessions("a"), "a".into(), 0),
            Entry::process(&sessions("a"), "pool-1/host-1", vec!["17.0".into()], 1),
            Entry::process(&sessions("a"), "pool-2/host-1", vec![], 2),
            Entry::session(&sessions("ab"), "ab".into(), 3),
            Entry::process(&sessions("ab"), "pool-1/host-1", vec![], 4),
        ];
        let meant = |name| choose(&entries, name, "").ok().copied();
        assert_eq!(meant("a"), Some(0));
        assert_eq!(meant("ab"), Some(3));
        for name in ["a/pool-1/host-1", "17.0", "17", "a/pool-1"] {
            assert_eq!(meant(name), Some(1), "{name}");
        }
        for name in ["pool-2/host-1", "pool-2", "a/pool-2/h"] {
            assert_eq!(meant(name), Some(2), "{name}");
        }
        let problem = choose(&entries, "pool-1/host-1", "").unwrap_err();
        assert!(problem.to_string().contains("a/pool-1/host-1 and ab/pool-1/host-1"), "{problem}");
        assert!(meant("").is_none() && meant("zzz").is_none());
        // A beginning of a process may also be that of one that these entries lack.
        assert!(choose_certain(&entries, "pool-2").unwrap().is_none());
        assert!(choose_certain(&entries, "17.0").unwrap().is_some());
    }
}
