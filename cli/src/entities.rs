//! `fiber entities`.

mod live;
mod recorded;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use fiber_core::inspect::{EntityKey, EntityKeys, EntityRecord, RecordedValue};
use serde::Serialize;
use serde_json::{Value, json};

use self::live::Live;
use self::recorded::Recorded;
use crate::args::{EntitiesCommand, EntitiesSource};
use crate::journal::new_table;
use crate::journal::value::value;
use crate::terminal::{printable, say_json};

/// Entities, as the list shows them.
#[derive(Serialize)]
struct Listed {
    name: String,
    /// The type of the actors, if it is known.
    of: Option<String>,
    /// The session, if they are in one.
    session: Option<String>,
    processes: Option<u64>,
    /// How many keys are live, in a session.
    live: Option<u64>,
    /// How many keys are recorded, in a journal.
    recorded: Option<u64>,
    journal: Option<PathBuf>,
}

/// Returns the process in which a key is live.
type PlaceOf<'a> = &'a dyn Fn(&EntityKey) -> Option<String>;

pub(crate) async fn entities(command: EntitiesCommand) -> anyhow::Result<ExitCode> {
    match command {
        EntitiesCommand::List { source, json } => list(&source, json).await?,
        EntitiesCommand::Show { source, json, name, key: Some(key), .. } => {
            let (record, place) = record(&source, &name, &key).await?;
            show(&record, place, json);
        }
        EntitiesCommand::Show { source, prefix, limit, json, name, key: None } => {
            match &source.journal {
                Some(journal) => {
                    let keys = Recorded::open(journal)?.keys(&name, &prefix, limit)?;
                    show_keys(&keys, &|_| None, json);
                }
                None => {
                    let mut live = Live::find(&source, &name).await?;
                    let keys = live.keys(&prefix, limit).await?;
                    show_keys(&keys, &|key| live.place(key), json);
                }
            }
        }
        EntitiesCommand::Events { source, name, key } => {
            let (record, _) = record(&source, &name, &key).await?;
            record.events.iter().for_each(|event| say!("{}", event_json(event)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the record of a key, and the process in which it is live.
async fn record(
    source: &EntitiesSource,
    name: &str,
    key: &str,
) -> anyhow::Result<(EntityRecord, Option<String>)> {
    let (record, place) = match &source.journal {
        Some(journal) => (Recorded::open(journal)?.record(name, key)?, None),
        None => {
            let mut live = Live::find(source, name).await?;
            let record = live.record(key).await?;
            let place = live.place(&record.of);
            (record, place)
        }
    };
    let of = &record.of;
    let is_known = of.live_in.is_some() || of.has_snapshot || of.events > 0 || of.reminders > 0;
    anyhow::ensure!(
        is_known,
        "`{name}` has no key `{key}`: `fiber entities show {name}` lists all"
    );
    Ok((record, place))
}

async fn list(source: &EntitiesSource, as_json: bool) -> anyhow::Result<()> {
    let listed = match &source.journal {
        Some(journal) => Recorded::open(journal)?.list()?,
        None => live::list(source).await?,
    };
    if as_json {
        say_json(&json!(listed));
    } else if listed.is_empty() {
        say!("There are no entities.");
    } else if source.journal.is_some() {
        let mut table = new_table(&["NAME", "KEYS"]);
        for entities in listed {
            table.add_row([entities.name, number(entities.recorded)]);
        }
        say!("{}", printable(table.trim_fmt()));
    } else {
        let mut table = new_table(&["NAME", "TYPE", "PROCESSES", "LIVE", "JOURNAL", "SESSION"]);
        for entities in listed {
            let journal = entities.journal.map(|path| path.display().to_string());
            table.add_row([
                entities.name,
                entities.of.unwrap_or_default(),
                number(entities.processes),
                number(entities.live),
                journal.unwrap_or_else(|| "-".into()),
                entities.session.unwrap_or_default(),
            ]);
        }
        say!("{}", printable(table.trim_fmt()));
    }
    Ok(())
}

fn number(count: Option<u64>) -> String {
    count.map_or_else(|| "-".into(), |count| count.to_string())
}

fn show_keys(found: &EntityKeys, place: PlaceOf<'_>, as_json: bool) {
    let EntityKeys { keys, more } = found;
    if as_json {
        let keys: Vec<_> = keys.iter().map(|key| key_json(key, place(key))).collect();
        return say_json(&json!({ "keys": keys, "more": more }));
    }
    if keys.is_empty() {
        return say!("There are no such keys.");
    }
    let mut table = new_table(&[
        "KEY",
        "LIVE IN",
        "UNANSWERED",
        "LAST EVENT",
        "EVENTS",
        "SNAPSHOT",
        "REMINDERS",
    ]);
    for key in keys {
        table.add_row([
            key.key.clone(),
            place(key).unwrap_or_else(|| "-".into()),
            key.unanswered.to_string(),
            key.last_event.to_string(),
            key.events.to_string(),
            if key.has_snapshot { "yes" } else { "no" }.into(),
            key.reminders.to_string(),
        ]);
    }
    say!("{}", printable(table.trim_fmt()));
    if *more > 0 {
        say!("There are {more} more keys: `--prefix` and `--limit` choose others.");
    }
}

fn show(record: &EntityRecord, place: Option<String>, as_json: bool) {
    let of = &record.of;
    let snapshot = record.snapshot.as_ref();
    let reminders = &record.reminders;
    if as_json {
        let mut shown = key_json(of, place);
        shown["snapshot"] = snapshot
            .map(|state| json!({ "number": state.number, "state": json_of(state) }))
            .unwrap_or_default();
        shown["events"] = record.events.iter().map(event_json).collect();
        shown["reminders"] = json!(reminders);
        return say_json(&shown);
    }
    let mut text = match place {
        Some(place) => format!("{}: live in {place}, {} unanswered", of.key, of.unanswered),
        None => format!("{}: asleep", of.key),
    };
    match snapshot {
        Some(state) => {
            text += &format!("\nstate after event {}: {:#}", state.number, json_of(state));
        }
        None => text += "\nno snapshot",
    }
    if let (Some(first), Some(last)) = (record.events.first(), record.events.last()) {
        text += &format!("\nevents since: {} to {}", first.number, last.number);
    }
    for reminder in reminders {
        let wait = reminder.due.duration_since(SystemTime::now()).unwrap_or_default();
        text += &format!("\nreminder `{}`: in {}", reminder.name, rounded(wait));
        if let Some(every) =
            reminder.every.and_then(|every| Duration::try_from_secs_f64(every).ok())
        {
            text += &format!(", every {}", rounded(every));
        }
    }
    say!("{}", printable(&text));
}

fn rounded(time: Duration) -> humantime::FormattedDuration {
    let time = if time.as_secs() > 0 { Duration::from_secs(time.as_secs()) } else { time };
    humantime::format_duration(Duration::from_millis(time.as_millis() as u64))
}

fn key_json(key: &EntityKey, place: Option<String>) -> Value {
    let mut shown = json!(key);
    shown["live_in"] = place.into();
    shown
}

/// Returns an event, which is recorded with the version of its form.
fn event_json(recorded: &RecordedValue) -> Value {
    let (version, event) = match json_of(recorded) {
        Value::Array(parts) => match <[Value; 2]>::try_from(parts) {
            Ok([version, event]) => (version, event),
            Err(parts) => (Value::Null, Value::Array(parts)),
        },
        other => (Value::Null, other),
    };
    json!({ "number": recorded.number, "version": version, "event": event })
}

/// Decodes a recorded value, as far as it describes itself.
fn json_of(recorded: &RecordedValue) -> Value {
    value(&recorded.bytes, recorded.blobs.iter().cloned().map(Bytes::from))
}
