//! A service: HTTP requests in front, a named actor in a process of its own behind. SIGTERM ends it
//! when the open requests are answered.

use std::collections::HashMap;
use std::time::Duration;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::{Router, routing::get};
use fiber::manager::{Snapshot, Snapshots};
use fiber::prelude::*;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// The name by which every process of the program finds the actor.
const VISITS: &str = "visits";

/// Counts the visits of pages.
#[derive(Default)]
struct Visits {
    counts: HashMap<String, u64>,
}

impl Actor for Visits {
    type Context = Context<Self>;
}

/// The state that outlives the actor's process.
impl Snapshot for Visits {
    type State = HashMap<String, u64>;

    fn snapshot(&self) -> HashMap<String, u64> {
        self.counts.clone()
    }

    fn restore(&mut self, counts: HashMap<String, u64>) {
        self.counts = counts;
    }
}

/// Counts a visit of a page, and returns how many there were.
#[fiber::message(u64)]
struct Visit(String);

#[fiber::message(u64)]
struct Count(String);

#[fiber::handlers]
impl Visits {
    fn visit(&mut self, Visit(page): Visit) -> u64 {
        let count = self.counts.entry(page).or_default();
        *count += 1;
        *count
    }

    fn count(&mut self, Count(page): Count) -> u64 {
        self.counts.get(&page).copied().unwrap_or_default()
    }
}

async fn visits() -> fiber::Result<RemoteAddr<Visits>> {
    let visits = fiber::find(VISITS).await?;
    Ok(visits.timeout(Duration::from_secs(5)))
}

/// The body of an answer, or its status and a reason.
type Answer = Result<String, (StatusCode, String)>;

fn answer(count: fiber::Result<u64>) -> Answer {
    let refusal = |error| (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"));
    count.map(|count| format!("{count}\n")).map_err(refusal)
}

async fn post_visit(Path(page): Path<String>) -> Answer {
    answer(async { visits().await?.send(Visit(page)).await }.await)
}

async fn get_visits(Path(page): Path<String>) -> Answer {
    answer(async { visits().await?.send(Count(page)).await }.await)
}

/// The service is healthy when its actor answers.
async fn health() -> Answer {
    get_visits(Path(String::new())).await
}

#[fiber::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let actor = AsyncManager::builder()
        .registered(VISITS)
        .snapshots(Snapshots::before_answers())
        .start(Visits::default, ())
        .await?;

    let app = Router::new()
        .route("/visits/{page}", get(get_visits).post(post_visit))
        .route("/health", get(health));
    let listen = std::env::var("LISTEN").unwrap_or("127.0.0.1:8080".into());
    let listener = TcpListener::bind(listen).await?;
    println!("http://{}/visits/home", listener.local_addr()?);

    // A program that handles these signals itself also ends itself.
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let end = async move {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
    };
    axum::serve(listener, app)
        .with_graceful_shutdown(end)
        .await?;
    Ok(actor.stop().await?)
}
