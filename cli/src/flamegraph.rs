//! Flame graphs: a picture of a profile, as SVG with its own search and zoom.

use anyhow::{Context, bail};
use fiber_core::inspect::ProfileText;
use inferno::flamegraph::{Options, from_lines};

/// Describes how much the process ran, and what its flame graph shows.
pub(crate) fn summary(name: &str, seconds: f64, profile: &ProfileText) -> String {
    let mut summary = format!("{name} ran {} of {seconds} s", percent(profile.share));
    if profile.fiber_share >= 0.01 {
        let share = percent(profile.fiber_share);
        summary += &format!(", fiber's own threads {share} (`--all` shows them)");
    }
    if profile.waits {
        summary += "; the flame graph shows where it waited";
    }
    if let Some(problem) = &profile.problem {
        summary += &format!("; {problem}");
    }
    summary
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Draws folded stacks (`frame;frame;frame count` lines) as a flame graph.
///
/// # Errors
/// There are no samples, or a line is none.
pub(crate) fn svg(profile: &ProfileText, title: &str) -> anyhow::Result<Vec<u8>> {
    let folded = &profile.folded;
    if folded.lines().all(|line| line.trim().is_empty()) {
        bail!(
            "there are no samples: no thread answered in this time; `--idle` samples those that \
             wait, too, and `--all` fiber's own"
        );
    }
    let mut options = Options::default();
    let waits = if profile.waits { "where it waited, " } else { "" };
    options.title = format!("{title}: {waits}ran {}", percent(profile.share));
    options.count_name = "samples".into();
    // Equal profiles give equal pictures.
    options.deterministic = true;
    let mut picture = Vec::new();
    from_lines(&mut options, folded.lines(), &mut picture)
        .context("the profile can't be drawn as a flame graph")?;
    Ok(picture)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(folded: &str, share: f64) -> ProfileText {
        let folded = folded.to_string();
        ProfileText { folded, waits: share < 0.01, share, fiber_share: 0.0, problem: None }
    }

    #[test]
    fn frames_and_their_samples_are_drawn() {
        let folded = "worker;run;simulate::step 30\nworker;run;<rest as Fn<T>>::call 10\n";
        let picture = svg(&profile(folded, 0.97), "squares/worker-1 & more").unwrap();
        let picture = String::from_utf8(picture).unwrap();
        assert!(picture.starts_with("<?xml") && picture.contains("</svg>"), "{picture}");
        for shown in [
            "simulate::step (30 samples, 75.00%)",
            "&lt;rest as Fn&lt;T&gt;&gt;::call (10 samples, 25.00%)",
            "squares/worker-1 &amp; more: ran 97.0 %",
        ] {
            assert!(picture.contains(shown), "`{shown}` is missing in {picture}");
        }
        assert!(!picture.contains("http-equiv") && !picture.contains("<script src"));
    }

    #[test]
    fn a_picture_of_waits_says_so_and_how_little_the_process_ran() {
        let waited = profile("main;sleep 40\n", 0.002);
        let said = summary("squares/worker-1", 4.0, &waited);
        assert_eq!(
            said,
            "squares/worker-1 ran 0.2 % of 4 s; the flame graph shows where it waited"
        );
        let picture = String::from_utf8(svg(&waited, "worker").unwrap()).unwrap();
        assert!(picture.contains("worker: where it waited, ran 0.2 %"), "{picture}");
        let encodes = ProfileText { fiber_share: 0.3, problem: Some("no names".into()), ..waited };
        let said = summary("a", 0.5, &ProfileText { waits: false, ..encodes });
        assert_eq!(
            said,
            "a ran 0.2 % of 0.5 s, fiber's own threads 30.0 % (`--all` shows them); no names"
        );
    }

    #[test]
    fn no_samples_are_an_error_that_says_why() {
        let problem = svg(&profile("\n", 0.0), "title").unwrap_err().to_string();
        assert!(problem.contains("--idle") && problem.contains("--all"), "{problem}");
    }
}
