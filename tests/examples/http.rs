//! A client for HTTP, no more than the tests need.

use std::io::{BufRead, BufReader, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Time limit for an answer, and for the next event.
const LONG: Duration = Duration::from_secs(120);

fn request(addr: &str, head: &str, body: &str) -> Result<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(LONG))?;
    // Answers of version 1.0 end with the connection, and have no chunks.
    let (method, rest) = head.split_once('\n').unwrap_or((head, ""));
    let length = body.len();
    let head = format!("{method} HTTP/1.0\r\nContent-Length: {length}\r\n{rest}\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes())?;
    Ok(BufReader::new(stream))
}

/// Posts a body with a key. Returns the answer, or `None` if there was none or it is an error.
pub(super) fn post(addr: &str, path: &str, key: &str, body: &str) -> Option<String> {
    let mut answer = String::new();
    let head = format!("POST {path}\nIdempotency-Key: {key}");
    request(addr, &head, body).and_then(|mut stream| stream.read_to_string(&mut answer)).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.split(' ').nth(1).filter(|status| *status == "200").map(|_| body.trim().to_string())
}

/// Reads a page.
pub(super) fn page(addr: &str, path: &str) -> String {
    let mut answer = String::new();
    let read = request(addr, &format!("GET {path}"), "")
        .and_then(|mut stream| stream.read_to_string(&mut answer));
    read.expect("it answers");
    answer
}

/// Server-sent events, with their ids. It ends with the connection.
pub(super) struct Events(BufReader<TcpStream>);

impl Events {
    /// Asks for the events after one, as browsers do when they connect again.
    pub(super) fn after(addr: &str, path: &str, last: Option<u64>) -> Result<Events> {
        let last = last.map_or(String::new(), |last| format!("\nLast-Event-ID: {last}"));
        request(addr, &format!("GET {path}{last}"), "").map(Events)
    }
}

impl Iterator for Events {
    type Item = (u64, String);

    fn next(&mut self) -> Option<(u64, String)> {
        let mut id = None;
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end();
            if let Some(number) = line.strip_prefix("id: ") {
                id = number.parse().ok();
            } else if let (Some(id), Some(data)) = (id, line.strip_prefix("data: ")) {
                return Some((id, data.to_string()));
            }
        }
    }
}
