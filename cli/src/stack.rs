//! `fiber stack` and `fiber profile`.

use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use fiber_core::inspect::{LONGEST_PROFILE, ProfileText, Request};
use fiber_core::{Patient, open_own};

use crate::args::ClusterArgs;
use crate::flamegraph;
use crate::inspect::sessions::Sessions;
use crate::inspect::target::{Located, Target};
use crate::terminal::printable;

/// `fiber stack`.
pub(crate) async fn stack(
    cluster: &ClusterArgs,
    all: bool,
    name: &str,
) -> anyhow::Result<ExitCode> {
    let mut sessions = Sessions::connect(cluster).await?;
    let observed = sessions.look().await?;
    let text: String = match sessions.locate(&observed, name).await? {
        Located::Known(Target { head, process, .. }) => {
            sessions.take(&head).await?.request(&Request::Stack { process, all }).await?
        }
        Located::Unreachable(process) => process.stack(all)?,
    };
    say!("{}", printable(&text).trim_end());
    Ok(ExitCode::SUCCESS)
}

/// The options of `fiber profile`.
#[derive(Debug, clap::Args)]
pub(crate) struct Profile {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// For how long to take samples.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) seconds: f64,
    /// The number of samples in a second.
    #[arg(long, value_name = "HERTZ", default_value = "99",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) hertz: u32,
    /// Samples threads that wait, too.
    #[arg(long)]
    pub(crate) idle: bool,
    /// Shows fiber's own threads, too.
    #[arg(long)]
    pub(crate) all: bool,
    /// The file of the flame graph; `-` for standard output. With the ending `.folded`, it gets the
    /// stacks as text [default: the process's name and `.svg`].
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// A session or process (see `fiber stack`).
    pub(crate) name: String,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= LONGEST_PROFILE => Ok(seconds),
        _ => Err(format!("give a number of seconds above 0, up to {LONGEST_PROFILE}")),
    }
}

/// `fiber profile`.
pub(crate) async fn profile(args: &Profile) -> anyhow::Result<ExitCode> {
    let to_stdout = args.output.as_deref() == Some(Path::new("-"));
    if to_stdout && std::io::stdout().is_terminal() {
        bail!("a flame graph is not for terminals: redirect the output, or name a file by `-o`");
    }
    let mut sessions = Sessions::connect(&args.cluster).await?;
    let observed = sessions.look().await?;
    let target = sessions.find(&observed, &args.name).await?;
    let mut inspector = sessions.take(&target.head).await?;
    let output = args.output.clone().unwrap_or_else(|| default_output(&target.name));
    let mut file = None;
    if !to_stdout {
        // Before the wait: a path that can't be written is known at once.
        let opened = open_own(&output, OpenOptions::new().write(true));
        file = Some(opened.with_context(|| format!("`{}` can't be written", output.display()))?);
    }
    tell!("Sampling {} for {} s", printable(&target.name), args.seconds);
    let &Profile { seconds, hertz, idle, all, .. } = args;
    let request = Request::Profile { process: target.process, seconds, hertz, idle, all };
    let profile = inspector.request::<ProfileText>(&request).await;
    let drawn = profile.map_err(anyhow::Error::from).and_then(|profile| {
        tell!("{}", printable(flamegraph::summary(&target.name, seconds, &profile)));
        match output.extension().is_some_and(|extension| extension == "folded") {
            true => Ok(profile.folded.into_bytes()),
            false => flamegraph::svg(&profile, &title(&target, args)),
        }
    });
    let Some(mut file) = file else {
        Patient(std::io::stdout()).write_all(&drawn?)?;
        return Ok(ExitCode::SUCCESS);
    };
    let written = drawn.and_then(|drawn| {
        file.set_len(0)?;
        Ok(file.write_all(&drawn)?)
    });
    if let Err(error) = written {
        // The empty file of above.
        if std::fs::metadata(&output).is_ok_and(|file| file.len() == 0) {
            let _ = std::fs::remove_file(&output);
        }
        return Err(error);
    }
    say!("Wrote {}: open it in a browser", output.display());
    Ok(ExitCode::SUCCESS)
}

fn title(target: &Target, args: &Profile) -> String {
    let head = &target.head.name;
    format!("{} of {head}: {} s at {} Hz", target.name, args.seconds, args.hertz)
}

fn default_output(name: &str) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = name.chars().map(plain).collect();
    format!("{}.svg", name.trim_start_matches(['-', '.'])).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_file_is_in_this_directory() {
        assert_eq!(default_output("squares/worker-1"), Path::new("squares-worker-1.svg"));
        assert_eq!(default_output("../a b"), Path::new("a-b.svg"));
    }

    #[test]
    fn only_times_that_a_head_takes_are_accepted() {
        let longest = LONGEST_PROFILE.to_string();
        for right in ["10", "0.5", &longest] {
            assert!(seconds(right).is_ok(), "{right}");
        }
        let longer = (LONGEST_PROFILE + 1.0).to_string();
        for wrong in ["0", "-1", "nan", "inf", &longer, "ten"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
