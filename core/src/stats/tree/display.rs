//! The drawing of the tree.

use std::fmt;

use super::{Branch, ChildKind, ChildState, Tree};

impl fmt::Display for ChildState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ChildState::Starting => "starting",
            ChildState::Running => "running",
            ChildState::Restarting => "restarting",
            ChildState::Stopping => "stopping",
            ChildState::Ended => "ended",
        })
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for root in &self.roots {
            writeln!(f, "{root}")?;
        }
        write!(f, "{}", self.memory)
    }
}

impl fmt::Display for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Row(self))?;
        draw_children(self, f, "")
    }
}

fn draw_children(branch: &Branch, f: &mut fmt::Formatter<'_>, indent: &str) -> fmt::Result {
    for (position, child) in branch.children.iter().enumerate() {
        let last = position + 1 == branch.children.len();
        let (fork, bar) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        write!(f, "\n{indent}{fork}{}", Row(child))?;
        draw_children(child, f, &format!("{indent}{bar}"))?;
    }
    Ok(())
}

/// A branch without its children, in one row.
struct Row<'a>(&'a Branch);

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row(branch) = self;
        f.write_str(&branch.name)?;
        if let ChildKind::Supervisor { strategy, restarts } = &branch.kind {
            write!(f, " (supervisor, {strategy}")?;
            if *restarts > 0 {
                write!(f, ", {}", Restarts(*restarts))?;
            }
            f.write_str(")")?;
            if branch.state == ChildState::Running && branch.restarts == 0 {
                return Ok(());
            }
        }
        write!(f, "{}  {}", Registered(&branch.names), branch.state)?;
        if let (ChildState::Restarting | ChildState::Ended, Some(reason)) =
            (branch.state, &branch.last_exit)
        {
            write!(f, " ({})", reason.to_string().lines().next().unwrap_or_default())?;
        }
        if let Some(place) = &branch.place {
            write!(f, "  {place}")?;
        }
        if branch.state == ChildState::Running {
            write!(f, "  {}", Age(branch.age().as_secs()))?;
        }
        if branch.restarts > 0 {
            write!(f, "  {}", Restarts(branch.restarts))?;
        }
        Ok(())
    }
}

/// The registered names of an actor, after its own.
pub(in crate::stats) struct Registered<'a>(pub(in crate::stats) &'a [String]);

impl fmt::Display for Registered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => Ok(()),
            names => write!(f, " (registered as {})", names.join(", ")),
        }
    }
}

struct Restarts(u64);

impl fmt::Display for Restarts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} restart{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

/// A time in seconds, in its largest unit.
struct Age(u64);

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            seconds @ 0..60 => write!(f, "{seconds}s"),
            seconds @ 60..3_600 => write!(f, "{}m", seconds / 60),
            seconds @ 3_600..86_400 => write!(f, "{}h", seconds / 3_600),
            seconds => write!(f, "{}d", seconds / 86_400),
        }
    }
}
