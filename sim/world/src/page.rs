//! Histories as pages: time downwards, a lane for each process.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use crate::log::{Event, Kind};

const STYLE: &str = "
body { font: 14px system-ui, sans-serif; margin: 1rem; color: #222; background: #fff }
h1 { font-size: 1.1rem }
table { border-collapse: collapse }
th { position: sticky; top: 0; background: #fff; writing-mode: vertical-rl; padding: .5rem .2rem;
     font-weight: 500; text-align: right }
th.words { writing-mode: horizontal-tb; text-align: left; vertical-align: bottom }
td { height: 1.3rem; padding: 0 .2rem; white-space: pre }
td.time { text-align: right; font-variant-numeric: tabular-nums; color: #666; padding-right: 1rem }
td.lane { width: 1.4rem; text-align: center;
          background: linear-gradient(#fff, #fff) no-repeat center / 100% 100% }
td.lives { background: linear-gradient(#b9cdea, #b9cdea) no-repeat center / .5rem 100% }
td.what { padding-left: 1rem }
.fault td.what, .end td.what { color: #b3261e }
.failure td.what { color: #fff; background: #b3261e }
.start td.what { color: #1b6e3c }
.unusual td.what { color: #8a6100 }
.note td.what { font-weight: 600 }
#threads:not(:checked) ~ table .thread, #unusual:not(:checked) ~ table .unusual { display: none }
";

/// Returns the class of an event's row, and the mark in its lane.
fn look(kind: Kind) -> Option<(&'static str, &'static str)> {
    match kind {
        Kind::Start => Some(("start", "▼")),
        Kind::End => Some(("end", "▲")),
        Kind::Thread => Some(("thread", "·")),
        Kind::Fault => Some(("fault", "✖")),
        Kind::Unusual => Some(("unusual", "~")),
        Kind::Note => Some(("note", "●")),
        Kind::Failure => Some(("failure", "!")),
        Kind::Turn | Kind::Success => None,
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns a history as an HTML page that needs nothing else. Processes of one name share a lane.
pub fn page(title: &str, events: &[Event]) -> String {
    let mut lanes = Vec::<&str>::new();
    for event in events {
        if !lanes.contains(&&*event.name) {
            lanes.push(&event.name);
        }
    }
    let title = escape(title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<h1>{title}</h1>\n\
         <input type=\"checkbox\" id=\"unusual\" checked><label for=\"unusual\">the unusual</label>\n\
         <input type=\"checkbox\" id=\"threads\"><label for=\"threads\">threads</label>\n\
         <table>\n<tr><th class=\"words\">time in s</th>"
    );
    for lane in &lanes {
        let _ = write!(page, "<th>{}</th>", escape(lane));
    }
    page += "<th class=\"words\"></th></tr>\n";
    // How many processes of each name live.
    let mut living = BTreeMap::from([("head", 1)]);
    for event in events {
        let Some((class, mark)) = look(event.kind) else { continue };
        if event.kind == Kind::Start {
            *living.entry(&event.name).or_insert(0) += 1;
        }
        let seconds = Duration::from_nanos(event.nanos).as_secs_f64();
        let _ = write!(page, "<tr class=\"{class}\"><td class=\"time\">{seconds:.9}</td>");
        for lane in &lanes {
            let lives =
                if living.get(lane).is_some_and(|count| *count > 0) { " lives" } else { "" };
            let mark = if *lane == event.name { mark } else { "" };
            let _ = write!(page, "<td class=\"lane{lives}\">{mark}</td>");
        }
        let (name, text) = (escape(&event.name), escape(&event.text));
        let _ = writeln!(page, "<td class=\"what\">{name} {text}</td></tr>");
        if event.kind == Kind::End {
            living.entry(&event.name).and_modify(|count| *count -= 1);
        }
    }
    page + "</table>\n</html>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_lane_for_each_process_and_a_row_for_each_event() {
        let event = |process, name: &str, kind, text: &str| {
            let (name, text) = (name.to_string(), text.to_string());
            Event { nanos: 1_500_000_000, process, name, kind, text }
        };
        let page = page(
            "seed 7 <fails>",
            &[
                event(1, "pool-1/worker-1", Kind::Start, "starts"),
                event(1, "pool-1/worker-1", Kind::Fault, "is killed"),
                event(1, "pool-1/worker-1", Kind::End, "ends"),
                event(0, "head", Kind::Turn, "main (0) runs"),
                event(0, "head", Kind::Thread, "main (0) ends"),
                event(2, "pool-1/worker-1", Kind::Start, "starts"),
                event(0, "head", Kind::Note, "<b>1 & 2</b>"),
                event(0, "head", Kind::Failure, "it is wrong"),
            ],
        );
        let rows: Vec<_> = page.lines().filter(|line| line.starts_with("<tr class=")).collect();
        assert_eq!(rows.len(), 7, "{page}");
        for row in &rows {
            assert_eq!(row.matches("<td").count(), 4, "{row}");
            assert_eq!(row.matches("</td>").count(), 4, "{row}");
        }
        // The worker lives from its start to its end, and again later.
        let worker_lives =
            |row: &&str| row.split("<td").nth(2).is_some_and(|lane| lane.contains("lives"));
        let lives: Vec<_> = rows.iter().map(worker_lives).collect();
        assert_eq!(lives, [true, true, true, false, true, true, true]);
        assert!(rows[1].starts_with("<tr class=\"fault\"><td class=\"time\">1.500000000</td>"));
        assert!(rows[1].contains('✖') && rows[1].ends_with("pool-1/worker-1 is killed</td></tr>"));
        assert!(rows[5].contains("&lt;b&gt;1 &amp; 2&lt;/b&gt;"), "{}", rows[5]);
        assert!(page.contains("<title>seed 7 &lt;fails&gt;</title>"));
        assert_eq!(page.matches("<th>").count(), 2);
        assert!(!page.contains("http") && !page.contains("src="), "it needs something else");
    }
}
