//! A directory with a directory for each task.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fiber_core::check_own_dir;

use super::quoted;
use crate::map::items::Item;
use crate::map::task::Outcome;

/// The file with the journal of the run that a directory belongs to.
const MARKER: &str = ".fiber-map";

pub(in crate::map) struct Directory(PathBuf);

impl Directory {
    /// Creates a directory, or continues in the one of an earlier run with the same journal.
    pub(in crate::map) fn create(path: &Path, journal: Option<&str>) -> anyhow::Result<Directory> {
        let shown = path.display();
        let unusable = || format!("the output directory `{shown}` can't be used");
        fs::create_dir_all(path).and_then(|()| check_own_dir(path)).with_context(unusable)?;
        let marker = path.join(MARKER);
        let mut entries = fs::read_dir(path).with_context(unusable)?;
        if entries.next().is_some() {
            let of_journal = fs::read_to_string(&marker).ok();
            if journal.is_none() || of_journal.as_deref() != journal {
                bail!(
                    "the output directory `{shown}` has files of another run: name another one, or \
                     remove it (a run with `--journal` continues in its own)"
                );
            }
        }
        fs::write(&marker, journal.unwrap_or_default()).with_context(unusable)?;
        Ok(Directory(path.to_path_buf()))
    }

    pub(super) fn add(
        &self,
        item: &Item,
        command: &[Vec<u8>],
        outcome: Option<&Outcome>,
    ) -> io::Result<()> {
        let folder = self.0.join(item.number.to_string());
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.join(name);
            fs::write(&path, bytes).map_err(|error| {
                io::Error::new(error.kind(), format!("`{}`: {error}", path.display()))
            })
        };
        fs::create_dir_all(&folder)?;
        let mut line = quoted(command);
        line.push(b'\n');
        write("command", &line)?;
        let Some(outcome) = outcome else { return Ok(()) };
        write("stdout", &outcome.stdout)?;
        write("stderr", &outcome.stderr)?;
        // The last file: a task whose directory has it is complete.
        write("exit-code", format!("{}\n", outcome.end.shell_code()).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Links at the names of files would lead their text elsewhere.
    #[test]
    fn a_directory_that_others_could_have_made_is_refused() {
        let shared = tempfile::tempdir().unwrap();
        let path = shared.path().join("results");
        fs::create_dir(&path).unwrap();
        for (directory, mode) in [(shared.path(), 0o1777), (&*path, 0o777)] {
            fs::set_permissions(directory, Permissions::from_mode(mode)).unwrap();
        }
        let problem = format!("{:#}", Directory::create(&path, None).err().unwrap());
        let place = path.display();
        assert!(problem.contains(&format!("other users can write `{place}`")), "{problem}");
    }
}
