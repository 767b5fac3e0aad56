//! A service: HTTP requests in front, actors by key in processes of their own behind. Each visit is
//! in a journal before it is answered, so a later start goes on from there. SIGTERM ends the service
//! when the open requests are answered.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Router, routing::get};
use fiber::entities::{EntitiesAddr, EventSourced};
use fiber::prelude::*;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Counts the visits of one page. It starts with its first message, and sleeps without any.
#[derive(Default)]
struct Page {
    visits: u64,
}

impl Actor for Page {
    type Context = Context<Self>;
}

/// What happens to a page. A later version of the program still reads it, by `upcast`.
#[derive(Serialize, Deserialize)]
struct Visited;

impl EventSourced for Page {
    type Event = Visited;

    fn apply(&mut self, _: Visited) {
        self.visits += 1;
    }
}

/// Counts a visit, and returns how many there were.
#[fiber::message(u64)]
struct Visit;

#[fiber::message(u64)]
struct Count;

#[fiber::handlers]
impl Page {
    fn visit(&mut self, _: Visit) -> u64 {
        // The answer leaves when the event is recorded.
        self.persist(Visited);
        self.visits
    }

    fn count(&mut self, _: Count) -> u64 {
        self.visits
    }
}

type Pages = State<EntitiesAddr<Page>>;

/// An answer comes within this time, or an error.
const LIMIT: Duration = Duration::from_secs(5);

/// The body of an answer, or its status and a reason.
type Answer = Result<String, (StatusCode, String)>;

fn answer(count: fiber::Result<u64>) -> Answer {
    let refusal = |error| (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"));
    count.map(|count| format!("{count}\n")).map_err(refusal)
}

async fn post_visit(State(pages): Pages, Path(page): Path<String>) -> Answer {
    answer(pages.of(page).send(Visit).timeout(LIMIT).await)
}

async fn get_visits(State(pages): Pages, Path(page): Path<String>) -> Answer {
    answer(pages.of(page).send(Count).timeout(LIMIT).await)
}

/// The service is healthy when a page answers.
async fn health(pages: Pages) -> Answer {
    get_visits(pages, Path("home".into())).await
}

#[fiber::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pages = Entities::builder("pages")
        .processes(2)
        .events()
        .durable("pages")
        .start(|_page: String, ()| Page::default(), ())
        .await?;

    let app = Router::new()
        .route("/visits/{page}", get(get_visits).post(post_visit))
        .route("/health", get(health))
        .with_state(pages.addr());
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
    Ok(pages.stop().await?)
}
