//! `fiber journal export`.

use std::io::{BufWriter, ErrorKind, Write, stdout};
use std::path::Path;

use bytes::Bytes;
use fiber_core::{Error, Patient};
use fiber_journal::{OutcomeKind, Reader};
use serde_json::{Value, json};

use super::value::value;
use crate::hex;

pub(crate) fn export(path: &Path, calls: &[String]) -> anyhow::Result<()> {
    let reader = Reader::open(path)?;
    let mut out = BufWriter::new(Patient(stdout().lock()));
    let mut print = |line: &Value| {
        let written = writeln!(out, "{line}");
        written.map_err(|error| Error::system("can't write the output", error))
    };
    let printed = (|| {
        reader.outcomes(|recorded| {
            let (label, outcome) = (recorded.call, recorded.outcome);
            if !calls.is_empty() && !calls.contains(&label.name) {
                return Ok(());
            }
            let mut line = json!({
                "name": label.name,
                "function": label.function,
                "version": label.version,
                "index": recorded.index,
                "outcome": match outcome.kind {
                    OutcomeKind::Returned => "returned",
                    OutcomeKind::Failed => "failed",
                    OutcomeKind::Abandoned => "abandoned",
                },
            });
            add_value(&mut line, &outcome.bytes, &outcome.blobs);
            print(&line)
        })?;
        if !calls.is_empty() {
            return Ok(());
        }
        reader.slots(|name, (slot, bytes, blobs)| {
            let mut line = json!({ "slots": name, "slot": slot });
            add_value(&mut line, &bytes, &blobs);
            print(&line)
        })
    })();
    match printed
        .and_then(|()| out.flush().map_err(|error| Error::system("can't write the output", error)))
    {
        // The reader of the pipe has read enough.
        Err(Error::System { cause, .. }) if is_broken_pipe(&*cause) => Ok(()),
        other => Ok(other?),
    }
}

fn add_value(line: &mut Value, bytes: &[u8], blobs: &[Bytes]) {
    line["value"] = value(bytes, blobs.iter().cloned());
    if !blobs.is_empty() {
        line["blobs"] = blobs.iter().map(|blob| hex(blob)).collect();
    }
}

fn is_broken_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    let error = cause.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}
