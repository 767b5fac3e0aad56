//! Flame graphs: a picture of a profile, as SVG with its own search and zoom.

use anyhow::{Context, bail};
use inferno::flamegraph::{Options, from_lines};

/// Draws folded stacks (`frame;frame;frame count` lines) as a flame graph.
///
/// # Errors
/// There are no samples, or a line is none.
pub(crate) fn svg(folded: &str, title: &str) -> anyhow::Result<Vec<u8>> {
    if folded.lines().all(|line| line.trim().is_empty()) {
        bail!(
            "there are no samples: no thread ran in this time; `--idle` samples those that wait, \
             too"
        );
    }
    let mut options = Options::default();
    options.title = title.to_string();
    options.count_name = "samples".into();
    // The same profile has the same picture.
    options.deterministic = true;
    let mut picture = Vec::new();
    from_lines(&mut options, folded.lines(), &mut picture)
        .context("the profile can't be drawn as a flame graph")?;
    Ok(picture)
}

#[cfg(test)]
mod tests {
    use super::svg;

    #[test]
    fn frames_and_their_samples_are_drawn() {
        let folded = "worker;run;simulate::step 30\nworker;run;<rest as Fn<T>>::call 10\n";
        let picture = String::from_utf8(svg(folded, "squares/worker-1 & more").unwrap()).unwrap();
        assert!(picture.starts_with("<?xml") && picture.contains("</svg>"), "{picture}");
        for shown in [
            "simulate::step (30 samples, 75.00%)",
            "&lt;rest as Fn&lt;T&gt;&gt;::call (10 samples, 25.00%)",
            "squares/worker-1 &amp; more",
        ] {
            assert!(picture.contains(shown), "`{shown}` is missing in {picture}");
        }
        assert!(!picture.contains("http-equiv") && !picture.contains("<script src"));
    }

    #[test]
    fn no_samples_are_an_error_that_says_why() {
        let problem = svg("\n", "title").unwrap_err().to_string();
        assert!(problem.contains("--idle"), "{problem}");
    }
}
