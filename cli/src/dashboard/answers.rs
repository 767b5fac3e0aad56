//! Answers of the dashboard to a browser.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use fiber_core::ProcessId;
use fiber_core::inspect::{ProfileText, Request as Inspection};
use fiber_core::stats::Slice;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, SET_COOKIE};
use hyper::{Method, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::access::{Access, Verdict};
use super::connections::Place;
use super::view;
use crate::flamegraph;
use crate::inspect::Inspector;
use crate::inspect::sessions::{Observed, Sessions};
use crate::model::trends::AllTrends;

const PAGE: &str = include_str!("page/index.html");
const SCRIPT: &str = include_str!("page/dashboard.js");
const STYLE: &str = include_str!("page/dashboard.css");
const ICON: &str = include_str!("page/icon.svg");

/// Several pages share what the heads answered this long ago.
const FRESH: Duration = Duration::from_millis(400);
/// The samples of a profile in a second.
const HERTZ: u32 = 99;
/// The longest profile.
const LONGEST_PROFILE: f64 = 60.0;

type Answer = Response<Full<Bytes>>;

/// The sessions that the page shows.
#[derive(Debug)]
pub(super) struct Dashboard {
    access: Access,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    sessions: Sessions,
    trends: AllTrends,
    last: Option<(Instant, Vec<Observed>)>,
}

impl Seen {
    async fn look(&mut self) -> anyhow::Result<Vec<Observed>> {
        match &self.last {
            Some((at, observed)) if at.elapsed() < FRESH => Ok(observed.clone()),
            _ => {
                let observed = self.sessions.look().await?;
                self.trends.update(&observed);
                self.last = Some((Instant::now(), observed.clone()));
                Ok(observed)
            }
        }
    }
}

impl Dashboard {
    pub(super) fn new(access: Access, sessions: Sessions) -> Dashboard {
        let seen = Seen { sessions, trends: AllTrends::default(), last: None };
        Dashboard { access, seen: Mutex::new(seen) }
    }

    pub(super) async fn answer(&self, request: &Request<Incoming>, place: &Place) -> Answer {
        let query = parameters(request.uri().query().unwrap_or_default());
        let token = query.get("token").map(String::as_str);
        let verdict = self.access.judge(request.headers(), token);
        if matches!(verdict, Verdict::Admitted | Verdict::Granted) {
            place.keep();
        }
        let answer = match verdict {
            Verdict::OtherHost => refusal("This is not the host of this dashboard."),
            Verdict::NoToken => refusal(
                "This dashboard needs the token in its link. Open the link that `fiber dashboard` \
                 printed in the terminal.",
            ),
            Verdict::Admitted => self.admission(),
            Verdict::Granted if request.method() != Method::GET => {
                text(StatusCode::METHOD_NOT_ALLOWED, "The dashboard only shows: use GET.")
            }
            Verdict::Granted => self.page(request.uri().path(), &query).await,
        };
        secured(answer)
    }

    /// Gives the browser its cookie, and takes the token out of its address bar.
    fn admission(&self) -> Answer {
        let mut answer = text(StatusCode::SEE_OTHER, "");
        for (name, value) in [(LOCATION, self.access.path()), (SET_COOKIE, &*self.access.cookie())]
        {
            if let Ok(value) = HeaderValue::from_str(value) {
                answer.headers_mut().insert(name, value);
            }
        }
        answer
    }

    async fn page(&self, path: &str, query: &HashMap<String, String>) -> Answer {
        match path.strip_prefix(self.access.path()) {
            Some("") => content("text/html; charset=utf-8", PAGE),
            Some("dashboard.js") => content("text/javascript; charset=utf-8", SCRIPT),
            Some("dashboard.css") => content("text/css; charset=utf-8", STYLE),
            Some("icon.svg") => content("image/svg+xml", ICON),
            Some("api/state") => content("application/json", self.state(query).await.to_string()),
            Some("api/stack") => or_problem(self.stack(query).await, "text/plain; charset=utf-8"),
            Some("api/timeline") => or_problem(self.timeline(query).await, "application/json"),
            Some("api/flamegraph") => or_problem(self.flamegraph(query).await, "image/svg+xml"),
            _ => text(
                StatusCode::NOT_FOUND,
                "There is no such page: the dashboard is at the link that `fiber dashboard` printed.",
            ),
        }
    }

    async fn state(&self, query: &HashMap<String, String>) -> Value {
        let open = query.get("open").and_then(|id| id.parse().ok());
        let mut seen = self.seen.lock().await;
        match seen.look().await {
            Ok(observed) => {
                let sessions: Vec<_> =
                    observed.iter().map(|one| view::session(one, &seen.trends, open)).collect();
                let ended = seen.sessions.is_limited() && sessions.is_empty();
                json!({ "sessions": sessions, "problem": ended.then_some("The session has ended.") })
            }
            Err(error) => json!({ "sessions": [], "problem": format!("{error:#}") }),
        }
    }

    /// Connects to the head that the query names.
    async fn inspector(&self, query: &HashMap<String, String>) -> anyhow::Result<Inspector> {
        let name = query.get("head").map(String::as_str).unwrap_or_default();
        let mut seen = self.seen.lock().await;
        let observed = seen.look().await?;
        let session = observed.iter().find(|one| one.head.name == name);
        let head = &session.with_context(|| format!("the session of {name} has ended"))?.head;
        Ok(seen.sessions.take(head).await?)
    }

    async fn stack(&self, query: &HashMap<String, String>) -> anyhow::Result<String> {
        let request = Inspection::Stack { process: process(query)?, all: false };
        Ok(self.inspector(query).await?.request(&request).await?)
    }

    async fn timeline(&self, query: &HashMap<String, String>) -> anyhow::Result<String> {
        let since = query.get("since").and_then(|text| text.parse().ok()).unwrap_or(0.0);
        let request = Inspection::Timeline { since };
        let slices: Vec<Slice> = self.inspector(query).await?.request(&request).await?;
        Ok(Value::from_iter(slices.iter().map(view::slice)).to_string())
    }

    async fn flamegraph(&self, query: &HashMap<String, String>) -> anyhow::Result<String> {
        let seconds = query.get("seconds").and_then(|text| text.parse().ok()).unwrap_or(5.0);
        if !(0.1..=LONGEST_PROFILE).contains(&seconds) {
            bail!(
                "a profile here takes up to {LONGEST_PROFILE} s: `fiber profile` takes longer ones"
            );
        }
        let (process, idle) = (process(query)?, query.get("idle").is_some_and(|idle| idle == "1"));
        let request = Inspection::Profile { process, seconds, hertz: HERTZ, idle, all: false };
        let profile: ProfileText = self.inspector(query).await?.request(&request).await?;
        let name = query.get("name").map_or("profile", String::as_str);
        Ok(String::from_utf8(flamegraph::svg(&profile, &format!("{name}, {seconds} s"))?)?)
    }
}

fn process(query: &HashMap<String, String>) -> anyhow::Result<ProcessId> {
    let id = query.get("process").and_then(|id| id.parse().ok());
    id.ok_or_else(|| anyhow!("the query names no process"))
}

/// Returns the parameters of a query, decoded.
fn parameters(query: &str) -> HashMap<String, String> {
    let decoded = |text: &str| {
        let text = text.replace('+', " ");
        percent_decode_str(&text).decode_utf8_lossy().into_owned()
    };
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

fn or_problem(result: anyhow::Result<String>, kind: &'static str) -> Answer {
    match result {
        Ok(body) => content(kind, body),
        Err(error) => text(StatusCode::BAD_GATEWAY, format!("{error:#}")),
    }
}

fn content(kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

fn text(status: StatusCode, words: impl Into<Bytes>) -> Answer {
    let mut answer = content("text/plain; charset=utf-8", words);
    *answer.status_mut() = status;
    answer
}

fn refusal(words: &'static str) -> Answer {
    text(StatusCode::FORBIDDEN, words)
}

/// Adds the headers that keep other pages away from the answer, and foreign code out of the page.
fn secured(mut answer: Answer) -> Answer {
    // A flame graph is a picture with a script of its own, for search and zoom.
    let is_picture = answer.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "image/svg+xml");
    let policy = if is_picture {
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
         frame-ancestors 'self'; sandbox allow-scripts"
    } else {
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; frame-src 'self'; frame-ancestors 'self'; base-uri 'none'; \
         form-action 'none'"
    };
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    for (name, value) in [
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let found = parameters("head=pid+4711&name=a%2Fb%26&open=&x%zz=%C3%A4");
        assert_eq!((found["head"].as_str(), found["name"].as_str()), ("pid 4711", "a/b&"));
        assert_eq!((found["open"].as_str(), found["x%zz"].as_str()), ("", "ä"));
    }

    #[test]
    fn the_page_needs_no_other_host() {
        for file in [PAGE, SCRIPT, STYLE] {
            let addresses = file.matches("//").count() - file.matches("http://www.w3.org/").count();
            let comments = file.lines().filter(|line| line.trim_start().starts_with("//")).count();
            assert_eq!(addresses, comments, "the page names another host");
            assert!(!file.contains("innerHTML") && !file.contains("insertAdjacentHTML"));
        }
    }
}
