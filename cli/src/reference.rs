//! Documentation from the command itself: completions, manual pages, docs/cli.md.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args as _, Command, CommandFactory};
use clap_complete::Shell;
use fiber_core::Config;

use crate::args::{Args, ClusterArgs};

pub(crate) fn completions(shell: Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "fiber", &mut script);
    say!("{}", String::from_utf8_lossy(&script).trim_end());
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(directory: Option<&Path>) -> anyhow::Result<ExitCode> {
    let Some(directory) = directory else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Args::command()).render(&mut page)?;
        say!("{}", String::from_utf8_lossy(&page).trim_end());
        return Ok(ExitCode::SUCCESS);
    };
    let root = Args::command();
    let mut pages = vec![("fiber".to_string(), root.clone())];
    pages.extend(with_subcommands(&root).into_iter().map(|(name, command)| {
        let name = format!("fiber-{}", name.replace(' ', "-"));
        (name.clone(), command.clone().name(name.clone()).bin_name(name))
    }));
    for (name, command) in pages {
        let path = directory.join(format!("{name}.1"));
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        fs::write(&path, page).with_context(|| format!("`{}` can't be written", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a page with the help of all commands, or the one about the configuration of programs,
/// with the sections of all backends.
pub(crate) fn markdown(configuration: bool) -> anyhow::Result<ExitCode> {
    if configuration {
        say!("{}", Config::page().trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    // The width of the terminal must not matter.
    let mut root = Args::command().term_width(100);
    root.build();
    let mut page =
        "# The command `fiber`\n\n<!-- Made by `make reference` from the command itself. -->\n"
            .to_string();
    page += &format!("\n```text\n{}\n```\n", help(&mut root.clone()));
    page += &format!("\n{SHARED}\n\n```text\n{}\n```\n", help(&mut shared()));
    for (name, command) in with_subcommands(&root) {
        let text = help(&mut without_shared(command));
        page += &format!("\n## fiber {name}\n\n```text\n{text}\n```\n");
        if command.get_arguments().any(|argument| argument.get_id() == "backend") {
            page += "\nBesides: [`--backend` and `--namespace`](#options-of-several-commands).\n";
        }
    }
    say!("{}", page.trim_end());
    Ok(ExitCode::SUCCESS)
}

const SHARED: &str = "## Options of several commands

Commands that start or find sessions have these options.";

/// Returns a command with the options that the page describes once.
fn shared() -> Command {
    ClusterArgs::augment_args(Command::new("fiber")).disable_help_flag(true).term_width(100)
}

/// Returns a command without these options, and without `--help`.
fn without_shared(command: &Command) -> Command {
    let options: Vec<_> = shared().get_arguments().map(|option| option.get_id().clone()).collect();
    command.clone().mut_args(|argument| {
        let is_shared = argument.get_id() == "help" || options.contains(argument.get_id());
        if is_shared { argument.hide(true) } else { argument }
    })
}

/// Returns all commands that the help shows, with their names behind `fiber`.
fn with_subcommands(root: &Command) -> Vec<(String, &Command)> {
    let mut commands = Vec::new();
    for command in shown(root) {
        commands.push((command.get_name().to_owned(), command));
        for (name, below) in with_subcommands(command) {
            commands.push((format!("{} {name}", command.get_name()), below));
        }
    }
    commands
}

fn shown(root: &Command) -> impl Iterator<Item = &Command> {
    root.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

fn help(command: &mut Command) -> String {
    let help = command.render_long_help().to_string();
    help.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim().to_string()
}
