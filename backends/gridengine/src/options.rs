//! Options of `qsub` that users write.

use std::time::Duration;

use fiber_backends::BackendError;

/// Options that fiber needs itself, or that would start several heads or none.
const RESERVED: [(&[&str], &str); 10] = [
    (&["-N"], "give the session a name with --name"),
    (&["-t", "-tc"], "a program has one head: start several sessions"),
    (&["-sync"], "use --attach"),
    (&["-now"], "a session waits for its slots: `fiber kill` removes it from the queue"),
    (&["-terse", "-verify", "-help"], "fiber reads the job's id itself; see --dry-run"),
    (&["-o", "-e", "-j"], "fiber reads the output from a file of its own"),
    (&["-pe"], "use --pe and --slots"),
    (&["-cwd", "-wd"], "the session runs in the directory of `fiber run`"),
    (&["-b", "-shell", "-S", "-C"], "the program is CMD, which fiber's script starts"),
    (&["-@", "-clear", "-sc", "-dc"], "it changes options that fiber needs: write them one by one"),
];

/// Returns the words of an option.
///
/// `given` names the option in errors. `own` has the remedies for options that are refused, where
/// they are not those of `fiber run`.
pub(super) fn verbatim(
    option: &str,
    given: &str,
    own: &[(&str, &'static str)],
) -> Result<Vec<String>, BackendError> {
    let words = shlex::split(option)
        .filter(|words| words.first().is_some_and(|word| word.len() > 1 && word.starts_with('-')));
    let Some(words) = words else {
        return Err(refused!(
            "{given} is no option of qsub: write it with its value, such as `-l h_vmem=4G`"
        ));
    };
    if let Some(wrong) = words.iter().find(|word| word.contains(['\n', '\0'])) {
        return Err(refused!("`{wrong}` has a line break, which no option of qsub may have"));
    }
    let reserved = words.iter().find_map(|word| {
        let of_pilots = own.iter().find(|(name, _)| name == word).map(|(_, why)| *why);
        let of_sessions = || RESERVED.iter().find(|(names, _)| names.contains(&&**word));
        of_pilots.or_else(|| of_sessions().map(|(_, why)| *why))
    });
    match reserved {
        Some(why) => Err(refused!("{given} can't be passed on: {why}")),
        None => Ok(words),
    }
}

/// Returns a time limit as Grid Engine takes it.
pub(super) fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_fiber_needs_itself_are_refused() {
        for (option, why) in [
            ("-N x", "--name"),
            ("-t 1-3", "one head"),
            ("-l a=1 -t 1-3", "one head"),
            ("-sync y", "--attach"),
            ("-now yes", "fiber kill"),
            ("-j y", "a file of its own"),
            ("-pe wide 4", "--slots"),
            ("-@ file", "one by one"),
        ] {
            let refused = verbatim(option, option, &[]).unwrap_err().to_string();
            assert!(refused.contains(why) && refused.contains(option), "{refused}");
        }
        for wrong in ["h_vmem=4G", "-", "", "-l 'a"] {
            assert!(
                verbatim(wrong, wrong, &[])
                    .unwrap_err()
                    .to_string()
                    .contains("is no option of qsub")
            );
        }
        assert!(verbatim("-A 'a\nb'", "", &[]).unwrap_err().to_string().contains("line break"));
        assert_eq!(verbatim("-l 'a=b c' -p -9", "", &[]).unwrap(), ["-l", "a=b c", "-p", "-9"]);
    }
}
