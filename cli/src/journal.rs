//! `fiber journal`.

mod export;
pub(crate) mod value;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bytesize::ByteSize;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use fiber_core::Config;
use fiber_journal::{CallLabel, Damage, Journal, Prune, Reader, Summary, journals, prune};
use serde_json::{Value, json};

use crate::args::JournalCommand;
use crate::terminal::{printable, say_json};

pub(crate) fn journal(command: JournalCommand) -> anyhow::Result<ExitCode> {
    match command {
        JournalCommand::Ls { json, folder } => ls(folder, json)?,
        JournalCommand::Show { json, journal } => show(&folder(&journal)?, json)?,
        JournalCommand::Export { call, journal } => export::export(&folder(&journal)?, &call)?,
        JournalCommand::Verify { json, journal } => return verify(&folder(&journal)?, json),
        JournalCommand::Prune { call, version, function, failed, damaged, json, journal } => {
            let is_removed = |label: &CallLabel| {
                call.contains(&label.name)
                    || version.contains(&label.version)
                    || function.contains(&label.function)
            };
            let what = Prune { calls: &is_removed, failures: failed, damaged };
            remove(&folder(&journal)?, &what, json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the folder of a journal, by its name or its path.
pub(crate) fn folder(journal: &Path) -> anyhow::Result<PathBuf> {
    let is_path = journal.as_os_str().as_encoded_bytes().contains(&b'/');
    Ok(match journal.to_str() {
        Some(name) if !is_path => Journal::new(name).path(&Config::load()?)?,
        _ => journal.to_owned(),
    })
}

fn ls(folder: Option<PathBuf>, as_json: bool) -> anyhow::Result<()> {
    let folder = match folder {
        Some(folder) => folder,
        None => Config::load()?.journals,
    };
    let paths = journals(&folder)
        .map_err(|error| anyhow::anyhow!("can't list `{}`: {error}", folder.display()))?;
    let summaries: Vec<(PathBuf, Result<Summary, fiber_core::Error>)> = paths
        .into_iter()
        .map(|path| {
            let summary = Reader::open(&path).and_then(|reader| reader.summary());
            (path, summary)
        })
        .collect();
    if as_json {
        let journals = summaries.iter().map(|(path, summary)| match summary {
            Ok(summary) => json_of(path, summary),
            Err(error) => json!({ "path": path, "name": name(path), "error": error.to_string() }),
        });
        say_json(&journals.collect::<Vec<_>>().into());
    } else if summaries.is_empty() {
        say!("There are no journals in {}.", folder.display());
    } else {
        let mut table =
            new_table(&["NAME", "CALLS", "RESULTS", "FAILURES", "SLOTS", "SIZE", "STATE"]);
        for (path, summary) in &summaries {
            match summary {
                Ok(summary) => table.add_row([
                    name(path),
                    summary.calls.len().to_string(),
                    results(summary).to_string(),
                    failures(summary).to_string(),
                    summary.slots.iter().map(|slots| slots.count).sum::<u64>().to_string(),
                    ByteSize(summary.size).to_string(),
                    state(summary),
                ]),
                Err(error) => {
                    table.add_row([&name(path), "-", "-", "-", "-", "-", &error.to_string()])
                }
            };
        }
        say!("{}", printable(table.trim_fmt()));
    }
    Ok(())
}

fn show(path: &Path, as_json: bool) -> anyhow::Result<()> {
    let summary = Reader::open(path)?.summary()?;
    if as_json {
        say_json(&json_of(path, &summary));
        return Ok(());
    }
    let mut text = format!("{}: {}, {}\n", path.display(), ByteSize(summary.size), state(&summary));
    if !summary.calls.is_empty() {
        let mut table =
            new_table(&["CALL", "FUNCTION", "VERSION", "RESULTS", "FAILED", "ABANDONED", "SIZE"]);
        for call in &summary.calls {
            let version = &call.label.version;
            table.add_row([
                call.label.name.clone(),
                call.label.function.clone(),
                if version.is_empty() { "-".into() } else { version.clone() },
                call.returned.to_string(),
                call.failed.to_string(),
                call.abandoned.to_string(),
                ByteSize(call.bytes).to_string(),
            ]);
        }
        text += &format!("\n{}\n", table.trim_fmt());
    }
    if !summary.slots.is_empty() {
        let mut table = new_table(&["SLOTS", "COUNT", "SIZE"]);
        for slots in &summary.slots {
            let (count, size) = (slots.count.to_string(), ByteSize(slots.bytes).to_string());
            table.add_row([slots.name.clone(), count, size]);
        }
        text += &format!("\n{}\n", table.trim_fmt());
    }
    if !summary.damage.is_empty() {
        text += &format!("\n{}\n", damage_lines(&summary).join("\n"));
    }
    say!("{}", printable(text.trim_end_matches('\n')));
    Ok(())
}

fn verify(path: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    let summary = Reader::open(path)?.summary()?;
    if as_json {
        say_json(&json_of(path, &summary));
    } else if summary.damage.is_empty() {
        say!(
            "{} is whole: {} commits with {} outcomes, {}",
            path.display(),
            summary.commits,
            results(&summary) + failures(&summary),
            ByteSize(summary.size)
        );
        if summary.unfinished > 0 {
            say!(
                "The last {} bytes are of a commit that is being written, or that a killed program \
                 has not completed.",
                summary.unfinished
            );
        }
    } else {
        say!("{}", printable(damage_lines(&summary).join("\n")));
        say!("`fiber journal prune --damaged` keeps the rest; lost tasks run again then.");
    }
    Ok(if summary.damage.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn remove(path: &Path, what: &Prune<'_>, as_json: bool) -> anyhow::Result<()> {
    let pruned = prune(path, what)?;
    if as_json {
        let value = json!({
            "outcomes": pruned.outcomes,
            "slots": pruned.slots,
            "damaged_bytes": pruned.damaged,
            "size_before": pruned.size_before,
            "size": pruned.size,
        });
        say_json(&value);
        return Ok(());
    }
    say!(
        "Removed {} outcomes, {} superseded values of slots and {} damaged bytes: {} before, {} now",
        pruned.outcomes,
        pruned.slots,
        pruned.damaged,
        ByteSize(pruned.size_before),
        ByteSize(pruned.size)
    );
    Ok(())
}

pub(crate) fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    table
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn results(summary: &Summary) -> u64 {
    summary.calls.iter().map(|call| call.returned).sum()
}

fn failures(summary: &Summary) -> u64 {
    summary.calls.iter().map(|call| call.failed + call.abandoned).sum()
}

fn state(summary: &Summary) -> String {
    match &summary.holder {
        _ if !summary.damage.is_empty() => "damaged".into(),
        Some(holder) => format!("written by {holder}"),
        None => "closed".into(),
    }
}

fn damage_lines(summary: &Summary) -> Vec<String> {
    let line = |Damage { path, offset, len, problem }: &Damage| match problem {
        Some(problem) => format!("Damaged: {problem}"),
        None if *len == 0 => format!("Damaged: the end of {} is missing", path.display()),
        None => format!("Damaged: {len} bytes of {} at byte {offset}", path.display()),
    };
    summary.damage.iter().map(line).collect()
}

fn json_of(path: &Path, summary: &Summary) -> Value {
    let calls = summary.calls.iter().map(|call| {
        json!({
            "name": call.label.name,
            "function": call.label.function,
            "version": call.label.version,
            "returned": call.returned,
            "failed": call.failed,
            "abandoned": call.abandoned,
            "bytes": call.bytes,
        })
    });
    let slots = summary
        .slots
        .iter()
        .map(|slots| json!({ "name": slots.name, "count": slots.count, "bytes": slots.bytes }));
    let damage = summary.damage.iter().map(|damage| {
        json!({
            "path": damage.path,
            "offset": damage.offset,
            "len": damage.len,
            "problem": damage.problem,
        })
    });
    json!({
        "path": path,
        "name": name(path),
        "calls": calls.collect::<Vec<_>>(),
        "slots": slots.collect::<Vec<_>>(),
        "commits": summary.commits,
        "size": summary.size,
        "unfinished_bytes": summary.unfinished,
        "damage": damage.collect::<Vec<_>>(),
        "written_by": summary.holder.as_ref().map(ToString::to_string),
    })
}
